"""Tests for the description of a rank's machine and its GPUs, with a stand-in for nvidia-smi."""

import json
import os
import sys
from types import SimpleNamespace

import psutil
import pytest
from farandole.ranks.preflight import gpus, machine
from farandole.ranks.preflight import probe as preflight

MIB = 2**20
TOTAL = 1000 * MIB
LINE = "GPU-a, NVIDIA H200, 580.95.05, 41, 0, 1024, 143771, 0x0000000000000040\n"


def test_a_rank_describes_itself_as_json():
    found = json.loads(json.dumps(preflight.describe()))
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["versions"]["farandole"] == "0.1.0"
    assert 0 < found["memory"][0] <= found["memory"][1] <= psutil.virtual_memory().total
    assert len(found["disks"]) == 2
    assert all(0 <= free <= total for free, total in found["disks"].values())
    assert (found["cpus"], found["pid"]) == (os.cpu_count(), os.getpid())


def test_a_package_that_is_not_installed_has_no_version(monkeypatch):
    monkeypatch.setattr(machine, "PACKAGES", ("farandole", "farandole-that-is-not"))
    assert machine.versions()["farandole-that-is-not"] == "none"


def test_cuda_and_nccl_are_reported_if_there_are_gpus(monkeypatch):
    cuda = SimpleNamespace(is_available=lambda: True, nccl=SimpleNamespace(version=lambda: (2, 29, 1)))
    torch = SimpleNamespace(
        cuda=cuda, version=SimpleNamespace(cuda="13.0"), distributed=SimpleNamespace(is_nccl_available=lambda: True)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert (machine.versions()["CUDA"], machine.versions()["NCCL"]) == ("13.0", "2.29.1")


def cgroup(folder, limit, used, cached, *, names=("memory.max", "memory.current", "inactive_file")):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used * MIB}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cached * MIB}\n")


def limits(tmp_path, own):
    (tmp_path / "own").write_text(own)
    return [(free // MIB, limit // MIB) for free, limit in machine.cgroup_limits(tmp_path, tmp_path / "own", TOTAL)]


def test_limits_of_all_cgroups_around_count_and_page_cache_is_free(tmp_path):
    cgroup(tmp_path / "a" / "b", 500 * MIB, 450, 50)
    cgroup(tmp_path / "a", "max", 600, 0)
    cgroup(tmp_path, 800 * MIB, 790, 0)
    assert limits(tmp_path, "0::/a/b\n") == [(100, 500), (10, 800)]


def test_limits_of_version_1_count(tmp_path):
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    cgroup(tmp_path / "memory" / "a", 500 * MIB, 450, 0, names=names)
    cgroup(tmp_path / "memory", 2**63 - 4096, 450, 0, names=names)
    assert limits(tmp_path, "4:cpu,cpuacct:/a\n3:memory:/a\n") == [(50, 500)]


def test_without_limits_or_cgroups_the_hosts_memory_counts(tmp_path):
    cgroup(tmp_path, 2 * TOTAL, 1, 0)
    assert limits(tmp_path, "0::/\n") == []
    assert machine.cgroup_limits(tmp_path, tmp_path / "missing", TOTAL) == []
    assert machine.memory(tmp_path, tmp_path / "missing")[1] == psutil.virtual_memory().total


def test_the_smaller_of_host_and_cgroup_memory_is_reported(tmp_path):
    cgroup(tmp_path, 10 * MIB, 9, 0)
    (tmp_path / "own").write_text("0::/\n")
    assert machine.memory(tmp_path, tmp_path / "own") == (MIB, 10 * MIB)


def test_ranks_share_the_limit_of_their_worker_and_the_memory_of_the_host(tmp_path):
    host = psutil.virtual_memory().total
    cgroup(tmp_path / "a", 64 * MIB, 10, 0)
    (tmp_path / "own").write_text("0::/a\n")
    assert machine.share_of_memory(2, 4, tmp_path, tmp_path / "own") == 32 * MIB
    assert machine.share_of_memory(2, 4, tmp_path / "none", tmp_path / "no") == host // 4


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Return a function that puts a script named nvidia-smi first on the PATH."""

    def make(script):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


def test_without_the_driver_there_are_no_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.describe() == {"gpus": [], "own_bytes": 0, "error": ""}


def test_gpus_are_described(nvidia_smi):
    nvidia_smi(f"printf '{LINE}'".replace("\n", "\\n"))
    found = gpus.describe()
    assert (found["error"], found["own_bytes"]) == ("", 0)
    assert found["gpus"] == [
        {
            "uuid": "GPU-a",
            "name": "NVIDIA H200",
            "driver": "580.95.05",
            "celsius": 41,
            "ecc_errors": 0,
            "slowed_by": ["heat"],
            "used_bytes": 1024 * MIB,
            "total_bytes": 143771 * MIB,
        }
    ]


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ("0x0000000000000004", []),
        ("0x0000000000000060", ["heat"]),
        ("0x0000000000000088", ["its hardware", "its power supply"]),
        ("[N/A]", []),
    ],
)
def test_only_faults_count_as_slowing_down(reasons, words):
    [gpu] = gpus.parse(f"GPU-a, T4, 580.1, [N/A], [N/A], 0, 15360, {reasons}\n")
    assert (gpu["slowed_by"], gpu["celsius"], gpu["ecc_errors"]) == (words, None, None)


@pytest.mark.parametrize(("known", "slowed_by"), [("throttle", ["heat"]), ("event", ["heat"]), ("nothing", [])])
def test_drivers_without_a_field_report_the_others(nvidia_smi, known, slowed_by):
    line, short = LINE.strip(), LINE.rpartition(",")[0]
    nvidia_smi(
        f"case $1 in *clocks_{known}_reasons*) echo '{line}' ;; *reasons*) echo 'not a valid field'; exit 2 ;; "
        f"*) echo '{short}' ;; esac"
    )
    found = gpus.describe()
    assert (found["error"], [gpu["slowed_by"] for gpu in found["gpus"]]) == ("", [slowed_by])


def test_a_driver_that_fails_or_hangs_is_reported(nvidia_smi, monkeypatch):
    nvidia_smi("echo 'No devices were found'; exit 6")
    assert gpus.describe()["error"] == "nvidia-smi failed: No devices were found"
    monkeypatch.setattr(gpus, "QUERY_SECONDS", 0.1)
    nvidia_smi("exec sleep 60")
    assert gpus.describe()["error"] == "nvidia-smi has not answered within 0.1 s"


def test_memory_reserved_by_torch_counts_as_our_own(monkeypatch):
    cuda = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 2, memory_reserved=lambda device: 10 + device
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert gpus._own_bytes() == 21 + gpus.CONTEXT_BYTES
