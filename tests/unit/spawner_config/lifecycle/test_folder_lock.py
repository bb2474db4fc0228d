"""Tests for the lock on a folder that only one process may use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from spawner_config.lifecycle import folder_lock
from spawner_config.lifecycle.folder_lock import LOCK, InUseError, end_holder, lock_folder
from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

# The process becomes another program, as the NATS server does. The second one ignores SIGTERM.
HOLD = """
import os, signal, sys
from pathlib import Path
from spawner_config.lifecycle.folder_lock import lock_folder
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock_folder(Path(sys.argv[1]))
os.execv("/bin/sleep", ["sleep", "60"])
"""


@pytest.fixture(params=["obedient", "stubborn"])
def holder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that holds the lock of the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path), request.param]
    with subprocess.Popen(command, env={"PYTHONPATH": str(ROOT)}) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", 20)
        yield process
        process.kill()


def test_a_folder_has_one_server(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with pytest.raises(InUseError, match=f"Another process uses the folder {tmp_path}"):
        lock_folder(tmp_path)


def test_the_server_of_a_killed_hub_is_ended(
    holder: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "END_SECONDS", 0.5)
    end_holder(tmp_path)
    assert holder.wait(5) < 0
    lock_folder(tmp_path)


def test_a_number_without_a_lock_ends_no_process(tmp_path: Path) -> None:
    end_holder(tmp_path)
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        (tmp_path / LOCK).write_text(str(other.pid))
        end_holder(tmp_path)
        assert other.poll() is None
        other.kill()
