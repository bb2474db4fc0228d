"""Tests for the memory limit of one process, with both versions of cgroups. Root also runs a test with real cgroups."""

import os
import subprocess
import sys

import pytest

from tests.chaos.memory import SIZE, MemoryLimit

TAKE = "import sys; sys.stdin.readline(); hoard = [bytes([1]) * 2**26 for _ in range(2**10)]"


@pytest.fixture
def taker():
    """A process that allocates 64 GB on command."""
    process = subprocess.Popen([sys.executable, "-c", TAKE], stdin=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("place", "names", "written"),
    [
        ("memory/one", ["memory.limit_in_bytes"], {"memory.limit_in_bytes": str(SIZE)}),
        ("one", ["memory.max", "memory.swap.max"], {"memory.max": str(SIZE), "memory.swap.max": "0"}),
    ],
)
def test_only_the_kernels_memory_limits_are_set(tmp_path, place, names, written):
    (group := tmp_path / place).mkdir(parents=True)
    for name in names:
        (group / name).touch()
    MemoryLimit("one", root=tmp_path).set(42)
    assert {path.name: path.read_text() for path in group.iterdir()} == written | {"cgroup.procs": "42"}


def test_a_missing_memory_controller_is_reported(tmp_path):
    assert not MemoryLimit.possible(root=tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="no memory controller"):
        MemoryLimit("one", root=tmp_path).set(os.getpid())


@pytest.mark.skipif(not MemoryLimit.possible(), reason="only root can limit memory")
def test_a_process_beyond_its_limit_is_killed_and_the_limit_is_removed(taker):
    limit = MemoryLimit(f"farandole-test-{os.getpid()}")
    limit.set(taker.pid)
    taker.communicate("now\n", timeout=60)
    limit.lift()
    assert taker.returncode == -9
    with pytest.raises(ProcessLookupError):
        limit.set(taker.pid)
    limit.lift()
