"""Tests of when the Dask worker of a rank begins tasks. The Dask worker itself is tested in test_worker.py."""

import sys

import pytest
from farandole.exceptions import DaskError
from farandole.ranks.data import worker
from farandole.ranks.data.engine import Engine


class StandIn:
    """Stands for a Dask worker and for its threads."""

    def __init__(self, scheduler, security):
        self.scheduler, self.executor = scheduler, self
        self.paused = self.closed = False

    def address(self):
        return f"tls://of-{self.scheduler}"

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False

    def close(self):
        self.closed = True


@pytest.fixture
def made(monkeypatch):
    """All Dask workers that were made."""
    made = []

    def make(*arguments):
        made.append(StandIn(*arguments))
        return made[-1]

    monkeypatch.setattr(worker, "DataWorker", make)
    return made


def test_a_further_start_ends_the_earlier_dask_worker(made):
    engine = Engine()
    assert engine.start("first", {}, pauses=False) == "tls://of-first"
    assert engine.start("second", {}, pauses=False) == "tls://of-second"
    assert [one.closed for one in made] == [True, False]
    engine.stop()
    engine.stop()
    assert [one.closed for one in made] == [True, True]


def test_a_notebook_ends_only_its_own_dask_worker(made):
    engine = Engine()
    engine.end("first")
    engine.start("first", {}, pauses=False)
    engine.start("second", {}, pauses=False)
    engine.end("first")
    assert [one.closed for one in made] == [True, False]
    engine.end("second")
    assert [one.closed for one in made] == [True, True]


def test_two_notebooks_do_not_take_a_rank_from_each_other_again_and_again(made):
    engine = Engine()
    engine.start("first", {}, pauses=False)
    engine.start("first", {}, pauses=False)
    engine.start("second", {}, pauses=False)
    with pytest.raises(DaskError, match="another notebook has started Dask on this rank"):
        engine.start("first", {}, pauses=False)
    engine.start("second", {}, pauses=False)
    engine.start("third", {}, pauses=False)
    assert [one.closed for one in made] == [True, True, True, True, False]


@pytest.mark.parametrize("pauses", [True, False])
def test_tasks_wait_during_training_if_the_user_says_so(made, pauses):
    engine = Engine()
    engine.start("s", {}, pauses=pauses)
    assert not made[0].paused
    engine.training_begins()
    assert made[0].paused is pauses
    engine.training_ends()
    assert not made[0].paused


def test_a_dask_worker_that_starts_during_training_waits_for_its_end(made):
    engine = Engine()
    engine.training_begins()
    engine.start("s", {}, pauses=True)
    assert made[0].paused
    engine.training_ends()
    assert not made[0].paused


def test_the_pause_can_be_changed_during_training(made):
    engine = Engine()
    engine.start("s", {}, pauses=False)
    engine.training_begins()
    engine.set_pauses(pauses=True)
    assert made[0].paused
    engine.set_pauses(pauses=False)
    assert not made[0].paused


def test_training_without_dask():
    engine = Engine()
    engine.training_begins()
    engine.set_pauses(pauses=True)
    engine.training_ends()


def test_a_worker_without_dask_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "farandole.ranks.data.worker", None)
    with pytest.raises(DaskError, match=r"not installed on this worker .*farandole\[data\]"):
        Engine().start("s", {}, pauses=False)
