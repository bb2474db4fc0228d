"""Tests that the soak test finds the processes, temporary folders and copies in shared memory that a run has left."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hub.process import wait_until
from tests.chaos.leftovers import SHARED_MEMORY, Leftovers

HOLD = "import sys; file = open(sys.argv[2]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def record():
    """A temporary folder like a worker's, with a file."""
    with tempfile.TemporaryDirectory(prefix="farandole-record-") as folder:
        (Path(folder) / "0.frames").touch()
        yield Path(folder)


@pytest.fixture
def rank(tmp_path, record):
    """A process that looks like a rank of the hub, and has a file open in the temporary folder."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, "ipykernel", str(record / "0.frames")],
        env={"HOME": str(tmp_path / "homes" / "ada")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"open\n"
        yield process


def test_a_process_and_its_temporary_folder_are_found(tmp_path, record, rank):
    leftovers = Leftovers(tmp_path)
    leftovers.note()
    process, folder = leftovers.left(None)
    assert f"process {rank.pid}: " in process
    assert folder == str(record)
    rank.kill()
    wait_until(lambda: leftovers.left(None) == [str(record)], 30)
    (record / "0.frames").unlink()
    record.rmdir()
    assert leftovers.left(None) == []
    record.mkdir()


def test_a_copy_in_shared_memory_is_found(tmp_path):
    with tempfile.NamedTemporaryFile(prefix="farandole-20260101-000000-beef-", dir=SHARED_MEMORY) as copy:
        assert Leftovers(tmp_path).left("20260101-000000-beef") == [copy.name]
        assert Leftovers(tmp_path).left("20260101-000000-dead") == []
