from __future__ import annotations

import pytest
from farandole.server.worker import deaths
from farandole.server.worker.deaths import explain_exit, oom_kills


@pytest.mark.parametrize(
    ("returncode", "out_of_memory", "words"),
    [
        (None, False, "ended for an unknown reason"),
        (0, False, "exited with code 0"),
        (3, True, "exited with code 3"),
        (75, False, "ended, to begin again together with the ranks that share its model"),
        (-9, False, "killed by signal 9 (SIGKILL)"),
        (-9, True, "killed by the host because it was out of memory (SIGKILL)"),
        (-11, True, "killed by signal 11 (SIGSEGV)"),
        (-63, False, "killed by signal 63 (signal 63)"),
    ],
)
def test_the_cause_is_described(returncode, out_of_memory, words):
    assert explain_exit(returncode, out_of_memory=out_of_memory) == words


def test_the_cgroups_count_has_priority_over_the_hosts(tmp_path, monkeypatch):
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 5\noom_kill 2\noom_group_kill 1\n")
    (tmp_path / "vmstat").write_text("nr_free_pages 1\noom_kill 40\n")
    monkeypatch.setattr(deaths, "VMSTAT", tmp_path / "vmstat")
    monkeypatch.setattr(deaths, "MEMORY_EVENTS", tmp_path / "missing")
    assert oom_kills() == 40
    monkeypatch.setattr(deaths, "MEMORY_EVENTS", tmp_path / "memory.events")
    assert oom_kills() == 2


def test_a_host_without_counters_has_no_oom_kills(tmp_path, monkeypatch):
    monkeypatch.setattr(deaths, "VMSTAT", tmp_path / "missing")
    monkeypatch.setattr(deaths, "MEMORY_EVENTS", tmp_path / "missing")
    assert oom_kills() == 0
