"""A run in progress receives records and provides series, tables and logs."""

import json
import math
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from farandole.exceptions import UsageError
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.model import LogTail, RunInfo
from farandole.runs.run import Run
from farandole.runs.series import POINTS, Axis, Envelope
from farandole.runs.store import RunStore
from farandole.runs.view import view_of
from farandole.runs.writer import Nowhere, write_atomically

DEADLINE = 30


@pytest.fixture
def run(tmp_path):
    info = RunInfo(id="r", folder=tmp_path, size=2, workers=("c-w0", "c-w1"), backend="torch", started=100.0)
    return Run(info, "code")


def report(run, rank, step=None, epoch=None, **values):
    record = report_to_json(Report(rank=rank, time=float(step or 0), step=step, epoch=epoch, values=values))
    run.add_records(rank, json.loads(json.dumps(record)))


def test_a_series_is_the_mean_over_ranks_with_spread(run):
    for step in range(3):
        report(run, 0, step=step, loss=1.0)
        report(run, 1, step=step, loss=3.0)
    (series,) = run.series()
    assert (series.name, series.x_label) == ("loss", "step")
    assert [(p.x, p.mean, p.low, p.high) for p in series.points] == [(x, 2.0, 1.0, 3.0) for x in range(3)]
    assert [p.mean for p in series.ranks[1]] == [3.0] * 3


def test_a_long_series_is_shortened_on_the_screen_only(run):
    for step in range(10_000):
        report(run, 0, step=step, loss=float(step))
    (series,) = run.series()
    assert POINTS / 2 <= len(series.points) <= POINTS
    assert (series.low, series.high, series.last) == (0.0, 9999.0, 9999.0)
    assert len(run.dataframe()) == 10_000


def test_series_of_different_length_are_aligned(run):
    for step in range(1000):
        report(run, 0, step=step, loss=1.0)
    for step in range(10):
        report(run, 1, step=step, loss=3.0)
    (series,) = run.series()
    assert series.points[0].mean == 2.0
    assert series.points[-1].mean == 1.0


def test_nan_and_infinity_are_kept_and_counted_and_leave_a_gap(run):
    for step, value in enumerate([1.0, math.nan, math.inf, 2.0]):
        report(run, 0, step=step, loss=value)
    (series,) = run.series()
    assert series.bad == 2
    assert [math.isnan(p.mean) for p in series.points] == [False, True, True, False]
    values = run.dataframe()["loss"].tolist()
    assert math.isnan(values[1])
    assert values[2] == math.inf


def test_dataframe_has_one_row_per_report(run):
    report(run, 0, step=1, epoch=0, loss=0.5)
    report(run, 0, epoch=1, accuracy=0.9)
    report(run, 1, loss=0.25)
    frame = run.dataframe()
    assert list(frame.columns) == ["rank", "time", "step", "epoch", "loss", "accuracy"]
    assert frame["rank"].tolist() == [0, 0, 1]
    assert frame["step"].isna().tolist() == [False, True, True]
    assert frame["loss"].isna().tolist() == [False, True, False]


def test_dataframe_without_reports_is_empty(run):
    assert list(run.dataframe().columns) == ["rank", "time", "step", "epoch"]
    assert run.dataframe().empty


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([(None, None)] * 3, [0, 1, 2]),
        ([(None, 4), (None, 5)], [4, 5]),
        ([(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)], [0, 1, 2, 3, 4]),
        ([(10, 0), (20, 0), (10, 1), (20, 1), (10, 2)], [10, 20, 30, 40, 50]),
        ([(0, 0), (1, 0), (2, 1), (3, 1)], [0, 1, 2, 3]),
        ([(5, None), (6, None), (3, None)], [5, 6, 3]),
    ],
)
def test_the_axis_continues_if_steps_restart_with_an_epoch(places, expected):
    axis = Axis()
    assert [axis.place(step, epoch) for step, epoch in places] == expected


def test_envelope_keeps_count_and_extremes():
    envelope = Envelope(limit=4)
    for x in range(1000):
        envelope.add(x, float(x % 7), 0.0, None)
    buckets = envelope.buckets.values()
    assert len(buckets) <= 4
    assert sum(bucket.count for bucket in buckets) == 1000
    assert (min(b.low for b in buckets), max(b.high for b in buckets)) == (0.0, 6.0)


def config(run, rank, **values):
    run.add_records(rank, {"kind": "config", "rank": rank, "time": 0.0, "values": values})


def test_hyperparameters_of_rank_0_are_merged(run):
    config(run, 0, lr=0.1, batch=64)
    config(run, 1, lr=9.0, width=3)
    config(run, 0, lr=0.2, augment=None)
    assert run.config == {"lr": 0.2, "batch": 64, "augment": None}


def test_a_message_with_too_many_hyperparameters_changes_nothing(run):
    config(run, 0, lr=0.1)
    with pytest.raises(UsageError, match="at most 200 hyper-parameters, not 201"):
        config(run, 0, **{f"p{n}": n for n in range(200)})
    assert run.config == {"lr": 0.1}


def test_result_is_that_of_the_lowest_rank(run):
    run.add_records(1, {"kind": "result", "rank": 1, "time": 0.0, "value": {"a": 1}})
    assert run.result == {"a": 1}
    run.add_records(0, {"kind": "result", "rank": 0, "time": 0.0, "value": 7})
    assert run.result == 7
    assert run.results == {0: 7, 1: {"a": 1}}


def test_ranks_show_their_latest_values(run):
    run.add_records(1, {"kind": "usage", "rank": 1, "time": 0.0, "cpu_percent": 90.0, "memory_bytes": 5})
    run.add_records(1, {"kind": "progress", "rank": 1, "time": 0.0, "name": "", "done": 1, "total": 2, "samples": 3})
    run.set_rank_state(1, "dead")
    view = run.ranks()[1]
    assert (view.worker, view.state, view.usage["cpu_percent"], view.progress[""]["done"]) == ("c-w1", "dead", 90.0, 1)


def test_a_rank_keeps_the_advice_about_its_memory_also_if_the_files_count_it(tmp_path):
    fit = {"kind": "fit", "rank": 1, "time": 0.0, "text": "The smallest mesh that fits is mesh={'shard': 4}."}
    run = Run(RunInfo(id="r", folder=tmp_path, size=2), "", written={"k": 5})
    run.add_records(1, fit, position=("k", 3))
    assert [view.advice for view in run.ranks()] == [fit["text"]]


def test_log_tail_keeps_the_last_lines_as_a_terminal_shows_them():
    tail = LogTail()
    tail.add("one\ntwo\nthree\nfour\n")
    tail.add(" 10%\r 50%\r\x1b[32m100%\x1b[0m\nfive")
    tail.add(" and more")
    assert tail.lines() == ["two", "three", "four", "100%", "five and more"]


def test_listener_gets_reports(run):
    seen = []
    run.listen(seen.append)
    report(run, 1, step=3, loss=1.0)
    assert [(r.rank, r.step, r.values) for r in seen] == [(1, 3, {"loss": 1.0})]


def test_a_run_finishes_only_once(run):
    run.finish(Status.FAILED, "boom")
    run.finish(Status.FINISHED)
    assert (run.status, run.error) == (Status.FAILED, "boom")
    assert "failed" in repr(run)


class SlowSink(Nowhere):
    """A sink that sets `closing` when `close` is called, and then waits for `may_close`."""

    def __init__(self):
        self.closing, self.may_close = threading.Event(), threading.Event()

    def close(self):
        self.closing.set()
        assert self.may_close.wait(DEADLINE)


def test_after_waiting_for_a_run_its_files_have_its_end(tmp_path):
    sink = SlowSink()
    run = Run(RunInfo(id="r", folder=tmp_path), "pass", sink)
    with ThreadPoolExecutor() as pool:
        ending = pool.submit(run.finish, Status.FINISHED)
        assert sink.closing.wait(DEADLINE)
        waiting = pool.submit(run.wait)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.2)
        assert run.wait(timeout=0) is run  # a timeout of 0 does not wait for the files
        sink.may_close.set()
        assert waiting.result(timeout=DEADLINE) is run
        ending.result(timeout=DEADLINE)


def test_unknown_kinds_are_ignored(run):
    run.add_records(0, {"kind": "value", "rank": 0})
    assert run.series() == []


def test_ranks_of_an_elastic_run_change_workers(run):
    run.assign_ranks(["c-w1"])
    assert [(view.worker, view.state) for view in run.ranks()] == [("c-w1", "running"), ("c-w1", "dead")]
    run.assign_ranks(["c-w1", "c-w0", "c-w2"])
    assert [(view.worker, view.state) for view in run.ranks()] == [
        (worker, "running") for worker in ("c-w1", "c-w0", "c-w2")
    ]
    assert (run.size, run.info.workers) == (3, ("c-w1", "c-w0", "c-w2"))


def test_series_are_available_without_lines_per_rank(run):
    for step in range(1000):
        report(run, 0, step=step, loss=step / 7)
        # Rank 1 reports less often, so its buckets are narrower than the buckets of rank 0.
        if step % 10 == 0:
            report(run, 1, step=step, loss=1.0)
    with_lines = run.series()
    assert sorted(with_lines[0].ranks) == [0, 1]
    assert run.series(by_rank=False) == [replace(one, ranks={}) for one in with_lines]
    assert run.series() == with_lines


@pytest.fixture
def written(tmp_path):
    """A run whose files are written."""
    return RunStore(tmp_path / "runs").create(code="", backend="torch", size=2, workers=["c-w0", "c-w1"])


@pytest.fixture
def writes(written, monkeypatch):
    """The names of the files that have been written as a whole since the run began."""
    names = []

    def write(path, *rest, **options):
        names.append(path.name)
        write_atomically(path, *rest, **options)

    monkeypatch.setattr("farandole.runs.writer.write_atomically", write)
    return names


def sync(run, rank, sent, position=None):
    """Add the figures that a rank sends after ``sent`` seconds, and write all that is to be written."""
    figures = {"mode": "step", "waiting": 0.1, "bytes_per_step": sent, "staleness": 0}
    run.add_records(rank, {"kind": "sync", "rank": rank, "time": float(sent), **figures}, position=position)
    run.flush()


def stored(folder):
    """Return the bytes per step of each rank in run.json."""
    figures = json.loads((folder / "run.json").read_text())["sync"]
    return {int(rank): one["bytes_per_step"] for rank, one in figures.items()}


def test_figures_of_a_sync_mode_are_shown_at_once_but_do_not_write_run_json_each_time(written, writes):
    for second in range(100):
        for rank in range(2):
            sync(written, rank, second)
        assert view_of(written, now=1.0)["sync"]["bytes_per_step"] == second
    assert "run.json" not in writes
    assert stored(written.folder) == {}
    written.finish(Status.FINISHED)
    assert writes.count("run.json") == 1


def test_figures_of_a_sync_mode_are_written_with_the_next_change(written, writes):
    sync(written, 0, 1)
    written.notice("careful")
    sync(written, 0, 2)
    assert stored(written.folder) == {0: 1}
    sync(written, 0, 3)
    assert writes.count("run.json") == 1
    written.finish(Status.FINISHED)


def test_figures_of_a_sync_mode_are_written_now_and_then(written, monkeypatch):
    sync(written, 0, 1)
    assert stored(written.folder) == {}
    written.notice("careful")
    monkeypatch.setattr("farandole.runs.run.SYNC_SECONDS", 0.0)
    sync(written, 0, 2)
    assert stored(written.folder) == {0: 2}
    written.finish(Status.FINISHED)


@pytest.mark.parametrize(
    "end",
    [lambda run: run.finish(Status.FINISHED), lambda run: run.finish(Status.FAILED, "boom"), Run.let_go],
    ids=["finished", "failed", "left"],
)
def test_the_last_figures_of_a_sync_mode_are_in_run_json_at_the_end(written, end):
    for second in range(3):
        sync(written, 1, second)
    end(written)
    assert stored(written.folder) == {1: 2}


def test_a_driver_that_is_killed_loses_no_figures_of_a_sync_mode(written, tmp_path):
    """positions.json counts the messages, but run.json lacks their figures. Kernel b took the rank of kernel a over."""
    messages = [(1, ("a", 1)), (2, ("a", 2)), (3, ("b", 1)), (4, ("b", 2))]
    for message in messages:
        sync(written, 0, *message)
    # Temporary files have hidden names, and may be gone before they are copied.
    visible = shutil.ignore_patterns(".*")
    other = RunStore(shutil.copytree(tmp_path / "runs", tmp_path / "other", ignore=visible))
    assert stored(other.folder / written.id) == {}
    again = other.resume(json.loads(written.info.to_json()), "")
    for sent, position in [*messages[2:], *messages[:2]]:
        sync(again, 0, sent, position)
    again.finish(Status.FAILED, "boom")
    assert stored(again.folder) == {0: 4}
    written.let_go()
