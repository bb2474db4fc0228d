"""Each rank on a machine gets an equal share of the cores, in every kind of container."""

import os

import pytest
import torch
from farandole.ranks.world import cores


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that simulates a machine with 16 cores and returns a rank's number of threads."""

    def set_up(node, whole, *, mine=16, files=None, own="0::/a\n"):
        monkeypatch.setattr(os, "cpu_count", lambda: 16)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(mine)))
        monkeypatch.setenv("FARANDOLE_LOCAL_SIZE", str(node))
        monkeypatch.setenv("FARANDOLE_MACHINE_SIZE", str(whole))
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "own").write_text(own)
        return cores.threads(tmp_path, tmp_path / "own")

    return set_up


def test_ranks_of_one_node_share_its_cores(machine):
    assert machine(4, 4) == 4


def test_ranks_in_several_containers_share_the_machines_cores(machine):
    assert machine(1, 2) == 8
    assert machine(1, 32) == 1


def test_containers_with_dedicated_cores_use_all_of_them(machine):
    assert machine(1, 4, mine=4) == 4


def test_a_limit_of_cpu_time_is_shared_by_the_ranks_of_its_container(machine):
    assert machine(1, 2, files={"a/cpu.max": "300000 100000\n"}) == 3
    assert machine(2, 2, files={"a/cpu.max": "300000 100000\n"}) == 1
    assert machine(1, 2, files={"a/cpu.max": "max 100000\n", "cpu.max": "500000 100000\n"}) == 5


@pytest.mark.parametrize(("quota", "threads"), [("250000\n", 2), ("-1\n", 8)])
def test_limits_of_version_1_count(machine, quota, threads):
    files = {"cpu/cpu.cfs_quota_us": quota, "cpu/cpu.cfs_period_us": "100000\n"}
    assert machine(1, 2, files=files, own="4:cpu,cpuacct:/docker/x\n") == threads


def test_torch_gets_the_share_unless_the_environment_overrides_it(machine, monkeypatch):
    before = torch.get_num_threads()
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    machine(1, 2000)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cores.share_cores() == {"OMP_NUM_THREADS": "1"}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores.share_cores() == {}
    assert asked == [1]
    assert torch.get_num_threads() == before
