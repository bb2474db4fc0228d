"""Tests that the soak test reports faults that exceed their limits or have no effect, and too many runs given up."""

from dataclasses import replace

import pytest

from tests.chaos.cell import Step
from tests.chaos.limits import exceeded, too_many
from tests.chaos.schedule import schedule
from tests.chaos.soak import Hit

LOST = ("rank 1 (worker w1) was lost: killed",)


@pytest.fixture
def ranks():
    return [Step(rank=rank, size=2, step=1, at=1.0, pid=10 + rank, parent=1, worker=f"w{rank}") for rank in (0, 1)]


def hit(kind, seconds=1.0):
    [fault] = schedule(1, 1, [kind], ["torch"], 2)
    return Hit(fault=fault, seconds=seconds, whole=seconds)


@pytest.mark.parametrize("kind", ["hub", "proxy", "driver", "disk"])
def test_some_faults_may_cost_no_rank(ranks, kind):
    assert list(exceeded(hit(kind), ranks, list(reversed(ranks)), ())) == []
    [problem] = exceeded(hit(kind), ranks, [ranks[0], replace(ranks[1], pid=99)], ())
    assert "has cost ranks" in problem
    assert "('w1', 99)" in problem


def test_a_killed_rank_is_a_new_process(ranks):
    assert list(exceeded(hit("rank"), ranks, [ranks[0], replace(ranks[1], pid=99)], LOST)) == []


def test_a_stopped_rank_may_delay_the_others_for_a_minute(ranks):
    assert list(exceeded(hit("stop", 45.0), ranks, ranks, LOST)) == []
    [problem] = exceeded(hit("stop", 75.0), ranks, ranks, LOST)
    assert "no rank trained for 75 s after fault 0: stop" in problem


def test_a_cut_without_an_effect_is_reported(ranks):
    assert list(exceeded(hit("cut", 12.0), ranks, ranks, ())) == []
    assert list(exceeded(hit("cut", 1.0), ranks, ranks, LOST)) == []
    [problem] = exceeded(hit("cut", 1.0), ranks, ranks, ("rank 1 answers again",))
    assert "no effect was seen after fault 0: cut" in problem


@pytest.mark.parametrize(
    ("given_up", "runs", "fine"), [(0, 1, True), (1, 1, False), (1, 2, True), (2, 10, False), (2, 20, True)]
)
def test_only_few_runs_may_be_given_up_and_never_all(given_up, runs, fine):
    assert (list(too_many(given_up, runs)) == []) == fine
