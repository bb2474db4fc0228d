"""Tests for the estimate of the time that a run still takes."""

import pytest
from farandole.runs.model import RankView
from farandole.runs.time_left import seconds_left


def loop(started, done, total, at, *, ended=False):
    return {"started": started, "done": done, "total": total, "time": at, "ended": ended}


def left(*loops, now=0.0, state="running"):
    """Return the time left on one rank, whose last message has the time ``now``."""
    progress = {str(place): one for place, one in enumerate(loops)}
    return seconds_left([RankView(rank=0, state=state, progress=progress, usage={"time": now})])


BATCHES = loop(1000.0, 25, 100, 1005.0)


def test_the_first_step_is_measured_by_the_loop_inside():
    assert left(loop(1000.0, 0, 10, 1000.0), BATCHES) == pytest.approx(195)


def test_three_nested_loops():
    files = loop(1000.0, 1, 4, 1004.0)
    batches = loop(1004.0, 50, 100, 1006.0)
    assert left(loop(999.0, 0, 2, 999.0), files, batches, now=1008.0) == pytest.approx(9 / 0.1875 - 9)


def test_finished_steps_are_measured_and_the_time_since_then_is_subtracted():
    epochs = loop(1000.0, 2, 10, 1040.0)
    assert left(epochs, loop(1040.0, 25, 100, 1045.0)) == 8 * 20 - 5
    assert left(epochs, loop(1040.0, 25, 100, 1045.0), now=1050.0) == 8 * 20 - 10


def test_a_step_that_is_slower_than_the_others_counts_as_one_step():
    assert left(loop(1000.0, 2, 10, 1040.0), loop(1040.0, 99, 100, 1100.0)) == 7 * 20


def test_the_second_loop_of_an_epoch_does_not_reset_the_first_step():
    training, validation = loop(1000.0, 3, 9, 1008.0, ended=True), loop(1008.0, 1, 9, 1010.0)
    assert left(loop(1000.0, 0, 10, 1000.0), training, validation) == 90


def test_a_loop_before_the_outermost_one_does_not_count():
    assert left(loop(900.0, 3, 9, 990.0, ended=True), loop(1000.0, 0, 10, 1000.0), BATCHES) == pytest.approx(195)


@pytest.mark.parametrize(
    "loops",
    [
        [],
        [BATCHES],
        [loop(980.0, 9, 9, 999.0, ended=True), BATCHES],
        [loop(1000.0, 3, None, 1000.0), BATCHES],
        [loop(1000.0, 0, 10, 1000.0), loop(1000.0, 0, 100, 1005.0)],
        [loop(1000.0, 0, 10, 1000.0), loop(1000.0, 7, None, 1005.0)],
        [loop(1000.0, 10, 10, 1100.0, ended=True), loop(1090.0, 100, 100, 1100.0, ended=True)],
        [{"done": 1, "total": 4, "time": 1000.0}, {"done": 1, "total": 4, "time": 1000.0}],
    ],
    ids=["no loop", "one loop", "a loop for each epoch", "no total", "nothing done", "inside no total", "ended", "old"],
)
def test_it_is_unknown(loops):
    assert left(*loops) is None


def test_a_loop_with_more_steps_than_its_total_has_no_time_left():
    assert left(loop(1000.0, 12, 10, 1120.0), BATCHES) == 0


def test_the_slowest_rank_counts_and_dead_ranks_do_not():
    def rank(number, seconds, state="running"):
        loops = {"epochs": loop(0.0, 1, 10, seconds), "batches": loop(seconds, 0, 5, seconds)}
        return RankView(rank=number, state=state, progress=loops)

    assert seconds_left([rank(0, 2.0), rank(1, 3.0), rank(2, 50.0, "dead"), RankView(rank=3)]) == 27
