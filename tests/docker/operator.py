"""What an operator does at the machine of a hub in containers: `make backup` and `make restore`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docker.stack import Stack

USER_ID = 1000
SECONDS = 600


def backup_folder(path: Path) -> Path:
    """Create a folder for backups, which the user id of the hub owns."""
    path.mkdir()
    os.chown(path, USER_ID, USER_ID)
    return path


def backup(stack: Stack, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program behind `make backup` and `make restore` in the hub's folder, on the hub's engine."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FARANDOLE_")}
    engine = {"DOCKER_HOST": stack.engine.url} if stack.engine else {}
    return subprocess.run(
        [sys.executable, "-m", "hub.backup", "--site", "compose", *words],
        cwd=stack.folder,
        env={**kept, "PYTHONPATH": str(ROOT), **engine},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def backed_up(stack: Stack, *words: str) -> str:
    """Run the program, and return what it reports. Raises AssertionError if it fails."""
    done = backup(stack, *words)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout + done.stderr


def refused(stack: Stack, *words: str) -> str:
    """Run the program, which has to fail, and return the reason."""
    done = backup(stack, *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr
