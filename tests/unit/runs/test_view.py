"""Tests for the view of a run, which dashboard and panel show."""

import json
import math
import random
import time

import pytest
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.model import RankView, RunInfo
from farandole.runs.run import Run
from farandole.runs.view import progress, seconds_left, view_of


def bars(tmp_path, *records):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1, workers=("c-w0",)), "code")
    for name, done, total, at, *ended in records:
        record = {"kind": "progress", "rank": 0, "time": at, "name": name, "done": done, "total": total}
        run.add_records(0, {**record, "samples": done, "started": 0.0, "ended": bool(ended)})
    return [bar["name"] for bar in progress(run.ranks())]


def test_a_finished_loop_is_replaced_by_the_next(tmp_path):
    assert bars(tmp_path, ("epoch 1", 5, 5, 1.0), ("epoch 2", 1, 5, 2.0)) == ["epoch 2"]


def test_between_two_loops_the_last_one_stays(tmp_path):
    assert bars(tmp_path, ("epoch 1", 5, 5, 1.0), ("epoch 2", 5, 5, 2.0)) == ["epoch 2"]


def test_nested_loops_show_both(tmp_path):
    assert bars(tmp_path, ("epochs", 1, 5, 1.0), ("batches", 3, 9, 2.0)) == ["epochs", "batches"]


def test_a_loop_that_ended_early_is_replaced_by_the_next(tmp_path):
    assert bars(tmp_path, ("search", 3, 100, 1.0, "ended"), ("train", 3, 9, 2.0)) == ["train"]


def test_a_loop_with_long_steps_stays(tmp_path):
    assert bars(tmp_path, ("epochs", 1, 5, 1.0), ("batches", 3, 9, 600.0)) == ["epochs", "batches"]


def test_a_dead_rank_has_no_bar(tmp_path):
    run = example_run(tmp_path, size=2)
    run.set_rank_state(1, "dead")
    assert progress(run.ranks()) == progress(run.ranks()[:1])
    run.set_rank_state(0, "dead")
    assert progress(run.ranks()) == []


def test_no_loop_no_bar(tmp_path):
    assert bars(tmp_path) == []


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


def example_run(tmp_path, *, size=4, steps=400, gpu=False, name="digits CNN"):
    """Return a run in the middle of training, whose metrics contain reproducible noise."""
    noise = random.Random(1)
    workers = tuple(f"demo-w{rank // 2}" for rank in range(size))
    info = RunInfo(
        id="20261121-123005-3f2a",
        folder=tmp_path,
        name=name,
        size=size,
        workers=workers,
        backend="horovod",
        started=time.time() - 83,
    )
    run = Run(info, "code")
    for rank in range(size):
        _train(run, rank, steps, noise)
        _report(run, rank, steps, gpu=gpu)
    return run


def _train(run, rank, steps, noise):
    for step in range(steps):
        loss = 2.2 * math.exp(-step / 90) + 0.06 + 0.05 * noise.random() * (1 + rank / 4)
        values = {"loss": math.nan if step == 200 else loss}
        if step % 40 == 39:
            values["accuracy"] = 1 - 0.8 * math.exp(-step / 100)
        run.add_records(rank, report_to_json(Report(rank=rank, time=float(step), step=step, values=values)))


def _report(run, rank, steps, *, gpu):
    usage = {"kind": "usage", "rank": rank, "time": 1.0, "cpu_percent": 91.0 + rank, "memory_bytes": 412_000_000}
    if gpu:
        usage |= {"gpu_percent": 72.0, "gpu_memory_bytes": 3.2e9, "gpu_memory_total_bytes": 24e9}
    run.add_records(rank, usage)
    progress = {"kind": "progress", "rank": rank, "time": 1.0, "name": "epochs", "done": 4, "total": 10, "samples": 4}
    progress |= {"started": -79.0, "ended": False}
    run.add_records(rank, {**progress, "rate": 0.05, "samples_per_second": 0.05, "step_seconds": 20.0})
    inner = {
        **progress,
        "started": 1.0,
        "name": "batches",
        "done": steps,
        "total": 1000,
        "samples": steps * 32,
        "rate": 30.0,
    }
    run.add_records(rank, {**inner, "samples_per_second": 960.0, "step_seconds": 0.04 if rank == 2 else 0.033})
    run.add_log(rank, f"epoch 3 loss 0.31\nepoch 4 loss 0.27 on rank {rank}\n")


def test_view_is_strict_json_and_small(tmp_path):
    run = example_run(tmp_path, size=8, steps=5000)
    text = json.dumps(view_of(run, time.time(), per_rank=True), allow_nan=False)
    assert len(text) < 200_000


def test_view_sums_throughput_and_marks_the_slowest(tmp_path):
    view = view_of(example_run(tmp_path), time.time())
    assert view["samples_per_second"] == 4 * 960
    assert [row["slowest"] for row in view["ranks"]] == [False, False, True, False]
    assert [bar["name"] for bar in view["progress"]] == ["epochs", "batches"]
    assert view["progress"][1]["seconds_left"] == pytest.approx(20.0)
    assert view["elapsed"] in (83, 84)


def test_a_row_has_the_memory_of_the_model_once_it_is_measured(tmp_path):
    run = example_run(tmp_path, size=2)
    sizes = {"parameters": 1, "gradients": 2, "optimizer": 3, "activations": 4, "step_sent": None}
    record = {f"{name}_bytes": size for name, size in sizes.items()}
    run.add_records(1, {"kind": "usage", "rank": 1, "time": 1.0, **record})
    assert [row["model"] for row in view_of(run, 0.0)["ranks"]] == [None, sizes]


def test_view_has_the_time_left_of_a_run_that_has_not_ended(tmp_path):
    run = example_run(tmp_path)
    assert view_of(run, time.time())["seconds_left"] == pytest.approx(120.0)
    run.finish(Status.INTERRUPTED)
    assert view_of(run, time.time())["seconds_left"] is None


def test_view_marks_no_rank_if_all_are_equal(tmp_path):
    run = example_run(tmp_path, size=2)
    assert not any(row["slowest"] for row in view_of(run, 0.0)["ranks"])


def test_view_shows_gaps(tmp_path):
    series = view_of(example_run(tmp_path, steps=250), 0.0)["series"][0]
    assert series["bad"] == 4
    assert series["mean"][200] is None
    assert series["bad_x"] == [200]
    assert series["ranks"] is None


def test_the_points_of_a_series_have_times_and_epochs(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=2, started=100.0), "")
    for step, rank in ((0, 0), (0, 1), (1, 0), (2, 0)):
        epoch = step // 2
        values = {"loss": math.nan if step == 1 else 1.0}
        report = Report(rank=rank, time=101.0 + step + rank, step=step, epoch=epoch, values=values)
        run.add_records(rank, report_to_json(report))
    (loss,) = view_of(run, 0.0)["series"]
    assert (loss["time"], loss["epoch"]) == ([1.5, 2.0, 3.0], [0.0, 0.0, 1.0])


@pytest.mark.parametrize(("places", "label"), [({"step": 1}, "step"), ({"epoch": 1}, "epoch"), ({}, "report")])
def test_a_series_has_epochs_only_beside_steps(tmp_path, places, label):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1), "")
    run.add_records(0, report_to_json(Report(rank=0, time=1.0, values={"loss": 1.0}, **places)))
    (loss,) = view_of(run, 0.0)["series"]
    assert (loss["x_label"], loss["epoch"]) == (label, [])


def test_view_of_an_empty_run(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=0), "")
    view = view_of(run, 0.0)
    assert (view["series"], view["ranks"], view["progress"], view["samples_per_second"]) == ([], [], [], None)


def test_the_view_of_a_long_run_is_fast(tmp_path):
    run = example_run(tmp_path, size=8, steps=5_000)
    began = time.perf_counter()
    view_of(run, time.time(), per_rank=True)
    assert time.perf_counter() - began < 0.3


def test_the_figures_of_a_sync_mode_are_those_of_the_rank_that_waits_most(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=2, workers=("c-w0", "c-w1")), "code")
    assert view_of(run, now=1.0)["sync"] is None
    # Rank 2 was there before the world became smaller.
    for rank, waiting, staleness in ((2, 0.9, 9), (0, 0.01, 6), (1, 0.2, 7), (1, 0.1, 7)):
        figures = {"mode": "local", "waiting": waiting, "bytes_per_step": 100 + rank, "staleness": staleness}
        run.add_records(rank, {"kind": "sync", "rank": rank, "time": 1.0, **figures})
    shown = {"mode": "local", "waiting": 0.1, "bytes_per_step": 100, "staleness": 7}
    assert view_of(run, now=1.0)["sync"] == shown
    assert RunInfo.from_json(json.loads(run.info.to_json()), tmp_path).sync == run.info.sync


def test_no_run_seems_to_send_nothing(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=2, workers=("c-w0", "c-w1")), "code")
    for sent, shown in ((0.0, 0), (0.1, 1), (1.4, 1)):
        for rank in (0, 1):
            figures = {"mode": "local", "waiting": 0.1, "bytes_per_step": sent, "staleness": 0}
            run.add_records(rank, {"kind": "sync", "rank": rank, "time": 1.0, **figures})
        assert view_of(run, now=1.0)["sync"]["bytes_per_step"] == shown


def test_the_share_of_waiting_is_unknown_if_no_rank_knows_it(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=2, workers=("c-w0", "c-w1")), "code")
    for rank, waiting, shown in ((0, None, None), (1, 0.1, 0.1)):
        figures = {"mode": "step", "waiting": waiting, "bytes_per_step": 100, "staleness": 0}
        run.add_records(rank, {"kind": "sync", "rank": rank, "time": 1.0, **figures})
        assert view_of(run, now=1.0)["sync"]["waiting"] == shown
    assert RunInfo.from_json(json.loads(run.info.to_json()), tmp_path).sync == run.info.sync
