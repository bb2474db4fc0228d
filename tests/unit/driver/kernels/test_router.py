"""Tests that a batch of messages is delivered only to its target: the run that it names, `%pull` or the elastic run."""

import pytest
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.router import MessageRouter
from farandole.protocol import Kind
from farandole.runs.store import RunStore

RESULT = {"kind": Kind.RESULT, "value": 7}


class Listener:
    """A stand-in for an elastic run that records the messages it receives."""

    def __init__(self):
        self.heard = []

    def hear(self, kernel, records):
        self.heard.append((kernel, list(records)))


@pytest.fixture
def kernel():
    return RankKernel(None, "k", slot=0)


@pytest.fixture
def runs(tmp_path):
    """Two runs in progress."""
    store = RunStore(tmp_path)
    return [store.create(code="x", backend="none", size=2, workers=["c-w0"]) for _ in range(2)]


@pytest.fixture
def router(runs):
    router = MessageRouter()
    router.runs.update({run.id: run for run in runs})
    return router


def batch(run_id, *records):
    return {"run": run_id, "records": list(records)}


def test_a_batch_reaches_the_run_that_it_names(router, runs, kernel):
    router.route(kernel, 1, batch(runs[1].id, RESULT), [], None)
    assert [run.results for run in runs] == [{}, {1: 7}]


def test_a_batch_of_another_run_reaches_none(router, runs, kernel):
    for run_id in ("20260101-000000-0000", ""):
        router.route(kernel, 0, batch(run_id, RESULT), [], None)
    assert [run.results for run in runs] == [{}, {}]


def test_a_run_that_has_left_the_router_takes_no_more_messages(router, runs, kernel):
    del router.runs[runs[0].id]
    router.route(kernel, 0, batch(runs[0].id, RESULT), [], None)
    assert runs[0].results == {}


def test_a_value_reaches_only_the_pull(router, runs, kernel):
    values, elastic = [], Listener()
    router.on_value = lambda *value: values.append(value)
    router.elastic = elastic
    router.route(kernel, 1, batch(runs[0].id, {"kind": Kind.VALUE, "python": "3.12.1"}), [b"pickled"], None)
    assert values == [(1, b"pickled", "3.12.1")]
    assert elastic.heard == []


def test_a_value_that_nothing_waits_for_is_dropped(router, runs, kernel):
    router.route(kernel, 1, batch(runs[0].id, {"kind": Kind.VALUE, "python": "3.12.1"}), [b"pickled"], None)
    assert runs[0].results == {}


def test_an_elastic_run_receives_the_messages_of_its_ranks_too(router, runs, kernel):
    router.elastic = elastic = Listener()
    member = {"kind": Kind.MEMBER}
    router.route(kernel, 0, batch(runs[0].id, member, RESULT), [], None)
    assert elastic.heard == [(kernel, [member, RESULT])]
    assert runs[0].results == {0: 7}


def test_a_batch_from_a_journal_reaches_only_its_run(router, runs):
    """The rank that wrote the journal may be lost, and a lost rank must not join the elastic run."""
    router.elastic = elastic = Listener()
    router.to_run(0, batch(runs[0].id, RESULT), [], ("k", 1))
    assert elastic.heard == []
    assert runs[0].results == {0: 7}
