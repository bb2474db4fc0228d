"""The driver writes a view of each run to the run's folder."""

import json
import time
from contextlib import suppress

import pytest
from farandole.protocol import Report, Status, report_to_json
from farandole.runs import view_files as viewfile
from farandole.runs.series import POINTS
from farandole.runs.store import RunStore
from farandole.runs.view import view_of
from farandole.runs.view_files import LINES, VIEW, ViewFiles

DEADLINE = 60


def created(folder, size=2):
    workers = [f"c-w{rank}" for rank in range(size)]
    return RunStore(folder).create(code="x", backend="torch", size=size, workers=workers, name="first")


def report(run, rank, step, **values):
    run.add_records(rank, report_to_json(Report(rank=rank, time=1.0, step=step, values=values)))


def read(run, name):
    return json.loads((run.folder / name).read_text(encoding="utf-8"))


def test_the_last_view_equals_the_dashboard(tmp_path):
    run = created(tmp_path)
    for step in range(3 * POINTS):
        for rank in range(2):
            report(run, rank, step, loss=1 / (step + 1), accuracy=float("nan"))
    run.add_log(1, "done\n")
    run.set_rank_state(1, "failed")
    run.finish(Status.FAILED, "rank 1: oh")
    assert read(run, VIEW) == view_of(run, time.time())
    lines = read(run, LINES)["series"]
    assert lines == view_of(run, time.time(), per_rank=True)["series"]
    assert [len(lines[0]["x"]), len(lines[0]["ranks"]["0"]["x"])] == [len(lines[0]["mean"])] * 2
    assert len(lines[0]["x"]) <= POINTS


def test_the_view_follows_an_active_run(tmp_path):
    run = created(tmp_path)
    report(run, 0, 1, loss=0.5)
    give_up = time.monotonic() + DEADLINE
    while not (run.folder / VIEW).exists() or not read(run, VIEW)["series"]:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    assert (read(run, VIEW)["status"], read(run, VIEW)["series"][0]["last"]) == ("running", 0.5)
    run.finish(Status.FINISHED)


@pytest.fixture
def breaks_at_the_second_series(monkeypatch):
    def view(run, now, **options):
        view = view_of(run, now, **options)
        if len(view["series"]) > 1:
            raise RuntimeError("a bug")
        return view

    monkeypatch.setattr(viewfile, "view_of", view)


def until(condition):
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_a_failed_view_does_not_affect_the_run_and_is_reported_once(tmp_path, breaks_at_the_second_series):
    run = created(tmp_path)
    report(run, 0, 1, loss=0.5)
    until(lambda: (run.folder / VIEW).exists() and read(run, VIEW)["series"])
    report(run, 0, 2, loss=0.4, accuracy=0.5)
    until(lambda: run.notices)
    report(run, 0, 3, loss=0.3)
    # The thread keeps running, and the view is emptied so that readers do not mistake an old view for the current one.
    until(lambda: len(RunStore(tmp_path).load_run(run.id)) == 3)
    until(lambda: (run.folder / VIEW).read_bytes() == b"")
    run.finish(Status.FINISHED)
    found = RunStore(tmp_path).load(run.id)
    assert (found.status, len(found.dataframe())) == (Status.FINISHED, 3)
    [notice] = found.notices
    assert found.info.warnings == found.notices
    assert "cannot be updated any more: RuntimeError('a bug')" in notice
    assert [(run.folder / name).read_bytes() for name in (VIEW, LINES)] == [b"", b""]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_failed_last_view_does_not_affect_the_run(tmp_path, monkeypatch, error):
    run = created(tmp_path)

    def view(*_, **__):
        # The run's own files are complete before the view is made.
        assert len(RunStore(tmp_path).load_run(run.id)) == 1
        raise error

    until((run.folder / LINES).exists)
    monkeypatch.setattr(viewfile, "view_of", view)
    report(run, 0, 1, loss=0.5)
    with suppress(KeyboardInterrupt):
        run.finish(Status.FINISHED)
    found = RunStore(tmp_path).load(run.id)
    assert (found.status, len(found.dataframe())) == (Status.FINISHED, 1)
    assert (run.folder / VIEW).read_bytes() == b""


class Files:
    def __init__(self):
        self.written = []

    def replace(self, name, text):
        json.loads(text)
        self.written.append(name)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        @staticmethod
        def time():
            return Clock.now

        @staticmethod
        def monotonic():
            return Clock.now

    monkeypatch.setattr(viewfile, "time", Clock)
    return Clock


def test_it_is_rewritten_only_after_changes_and_not_too_often(tmp_path, clock):
    run, files = created(tmp_path), Files()
    run.finish(Status.FINISHED)
    views = ViewFiles(run, files)
    views.renew(1)
    assert files.written == [VIEW, LINES]
    clock.now += 100
    views.renew(1)
    assert len(files.written) == 2
    views.renew(2)
    views.renew(3)
    clock.now += 1.5
    views.renew(3)
    assert files.written[2:] == [VIEW, LINES, VIEW]
    views.renew(3, last=True)
    assert files.written[5:] == [VIEW, LINES]


def test_slow_writes_are_rare(tmp_path, clock, monkeypatch):
    def slow(run, now, **options):
        clock.now += 0.2
        return view_of(run, now, **options)

    monkeypatch.setattr(viewfile, "view_of", slow)
    run, files = created(tmp_path), Files()
    run.finish(Status.FINISHED)
    views = ViewFiles(run, files)
    version, begun = 0, clock.now
    while clock.now < begun + 1000:
        version += 1
        views.renew(version)
        clock.now += 0.25
    # A view takes 0.2 s to write, so the two files are due every 5.2 s and every 20.2 s.
    assert files.written.count(VIEW) <= 1000 / 5
    assert files.written.count(LINES) <= 1000 / 20
