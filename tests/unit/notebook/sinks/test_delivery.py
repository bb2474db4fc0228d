"""Tests that a slow or failing tracker neither slows nor ends a run."""

import threading

import pytest
from farandole.notebook.sinks import delivery
from farandole.notebook.sinks.delivery import Delivery, Tracker
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.store import RunStore


class Recorder(Tracker):
    """Keeps what it receives. It waits for ``gate`` before each call, and `write` raises the ``error``, if any."""

    name = "Recorder"

    def __init__(self, *, error=None):
        self.error = error
        self.gate = threading.Event()
        self.received = []

    def open(self, run):
        self.gate.wait()
        self.received.append("open")

    def write(self, reports):
        if self.error is not None:
            raise self.error
        self.received += [report.step for report in reports]

    def close(self, run):
        self.received.append(run.status)


def start(tmp_path):
    return RunStore(tmp_path / "runs").create(code="", backend="torch", size=1, workers=["a"])


def report(run, step):
    run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=step, values={"loss": 1.0})))


def test_the_run_does_not_wait_for_a_tracker_that_hangs(tmp_path):
    run, tracker = start(tmp_path), Recorder()
    sending = Delivery(run, tracker)
    for step in range(500):
        report(run, step)
    run.finish(Status.FINISHED)
    sending.close()
    sending.wait(0.05)
    assert [text for text in run.notices if "has not received the whole run yet" in text]
    tracker.gate.set()
    sending.wait(30)
    assert tracker.received == ["open", *range(500), Status.FINISHED]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("no route to host"), "no route to host"),
        (ModuleNotFoundError("No module named 'boto3'"), "No module named 'boto3'"),
        (RuntimeError(), "RuntimeError()"),
    ],
)
def test_an_error_gives_one_notice_and_nothing_more_is_sent(tmp_path, error, reason):
    run, tracker = start(tmp_path), Recorder(error=error)
    sending = Delivery(run, tracker)
    tracker.gate.set()
    for step in range(5):
        report(run, step)
    sending.close()
    sending.wait(30)
    report(run, 6)
    assert tracker.received == ["open"]
    assert run.notices == (f"Recorder does not have the whole run: {reason}; the run's folder has it",)
    assert run.info.warnings == run.notices
    assert len(run.dataframe()) == 6
    run.finish(Status.FINISHED)


def test_too_many_waiting_reports_end_the_delivery(tmp_path, monkeypatch):
    monkeypatch.setattr(delivery, "MOST_WAITING", 10)
    run, tracker = start(tmp_path), Recorder()
    sending = Delivery(run, tracker)
    for step in range(20):
        report(run, step)
    assert sum("too many reports" in text for text in run.notices) == 1
    tracker.gate.set()
    sending.close()
    sending.wait(30)
    run.finish(Status.FINISHED)
