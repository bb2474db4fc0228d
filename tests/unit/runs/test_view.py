"""A dashboard shows the progress bars of the current work."""

from farandole.runs.model import RunInfo
from farandole.runs.run import Run
from farandole.runs.view import progress


def bars(tmp_path, *records):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1, workers=("c-w0",)), "code")
    for name, done, total, time in records:
        run.add_records(
            0,
            {"kind": "progress", "rank": 0, "time": time, "name": name, "done": done, "total": total, "samples": done},
        )
    return [bar["name"] for bar in progress(run.ranks())]


def test_a_finished_loop_is_replaced_by_the_next(tmp_path):
    assert bars(tmp_path, ("epoch 1", 5, 5, 1.0), ("epoch 2", 1, 5, 2.0)) == ["epoch 2"]


def test_between_two_loops_the_last_one_stays(tmp_path):
    assert bars(tmp_path, ("epoch 1", 5, 5, 1.0), ("epoch 2", 5, 5, 2.0)) == ["epoch 2"]


def test_nested_loops_show_both(tmp_path):
    assert bars(tmp_path, ("epochs", 1, 5, 1.0), ("batches", 3, 9, 2.0)) == ["epochs", "batches"]


def test_a_loop_that_ended_early_disappears_after_a_while(tmp_path):
    assert bars(tmp_path, ("search", 3, 100, 1.0), ("train", 3, 9, 60.0)) == ["train"]


def test_no_loop_no_bar(tmp_path):
    assert bars(tmp_path) == []
