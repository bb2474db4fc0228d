"""Tests for the schedule of a soak test: reproducible faults, equally frequent kinds, and alternating backends."""

from collections import Counter

from tests.chaos.schedule import PER_RUN, runs, schedule

KINDS = ("rank", "rank-0", "worker", "driver")
BACKENDS = ("horovod", "torch")


def test_the_same_seed_gives_the_same_faults_for_any_count():
    faults = schedule(7, 40, KINDS, BACKENDS, 3)
    assert faults == schedule(7, 40, KINDS, BACKENDS, 3)
    assert faults[:13] == schedule(7, 13, KINDS, BACKENDS, 3)
    assert faults != schedule(8, 40, KINDS, BACKENDS, 3)


def test_each_kind_occurs_equally_often_on_both_backends():
    faults = schedule(1, 40, KINDS, BACKENDS, 3)
    assert Counter(fault.kind for fault in faults) == dict.fromkeys(KINDS, 10)
    assert [{fault.backend for fault in run} for run in runs(faults)] == [{"horovod"}, {"torch"}] * 2
    assert [fault.number for run in runs(faults) for fault in run] == list(range(40))


def test_the_kind_rank_is_any_rank_except_rank_0():
    faults = schedule(1, 200, KINDS, BACKENDS, 3)
    assert {fault.rank for fault in faults if fault.kind == "rank"} == {1, 2}
    assert {fault.rank for fault in faults if fault.kind == "rank-0"} == {0}
    assert {fault.rank for fault in faults if fault.kind == "worker"} == {0, 1, 2}


def test_a_single_fault_gets_its_own_run():
    faults = schedule(1, 40, KINDS, BACKENDS, 3)
    assert runs([faults[PER_RUN + 3]]) == [[faults[PER_RUN + 3]]]
    assert str(faults[0]) == f"fault 0: {faults[0].kind} (horovod), after {faults[0].steps} steps"
