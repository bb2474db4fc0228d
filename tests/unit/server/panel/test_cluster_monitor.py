"""Tests for what the monitor does not know, because a run must not be deleted while it may be in progress."""

import pytest
from farandole.server.panel.cluster_monitor import ClusterMonitor
from farandole.server.panel.clusters import WorkerAnswer


@pytest.fixture
def monitor(tmp_path):
    """The monitor of a user with two workers, which have not been asked yet."""
    monitor = ClusterMonitor(tmp_path, object(), lambda: None, {})
    monitor.snapshot.servers = {name: {"ready": True} for name in ("main-w0", "main-w1")}
    return monitor


def answer(monitor, *workers):
    monitor.user = "ada"
    monitor.snapshot.answers = {name: WorkerAnswer(status=None, time=1.0) for name in workers}


def test_the_active_runs_are_known_when_all_workers_have_answered(monitor):
    answer(monitor, "main-w0", "main-w1")
    assert monitor.unsure("main") is None


def test_a_cluster_without_workers_has_no_active_runs(monitor):
    answer(monitor)
    assert monitor.unsure("other") is None


def test_a_silent_worker_may_execute_a_run(monitor):
    answer(monitor, "main-w0")
    assert monitor.unsure("main") == "worker main-w1 does not answer"


def test_without_the_hubs_answer_no_run_is_known_to_have_ended(monitor):
    assert monitor.unsure("other") == "the hub has not answered yet"
    answer(monitor, "main-w0", "main-w1")
    monitor.error = "the hub does not answer"
    assert monitor.unsure("main") == "its workers cannot be asked (the hub does not answer)"


def test_without_a_hub_there_are_no_workers_to_ask(tmp_path):
    assert ClusterMonitor(tmp_path, None, lambda: None, {}).unsure("main") is None
