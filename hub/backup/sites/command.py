"""Runs docker and kubectl on the operator's machine."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from hub.backup.place import BackupError

if TYPE_CHECKING:
    from pathlib import Path


def run(*command: str, cwd: Path | None = None, typed: str = "") -> str:
    """Return the output of a command with ``typed`` as its input; raises `BackupError` with the reason if it fails."""
    done = _run(*command, cwd=cwd, typed=typed, stderr=subprocess.PIPE)
    if done.returncode:
        raise BackupError(f"{' '.join(command[:4])} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def run_agent(*command: str, job: str) -> dict[str, Any]:
    """Run the agent with a job, and return its result. Show what it reports while it runs; raises `BackupError`."""
    done = _run(*command, typed=job)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError as exc:
        raise BackupError(f"{command[0]} ended with status {done.returncode} before the step was done.") from exc
    if "error" in result:
        raise BackupError(str(result["error"]))
    return result


def _run(
    *command: str, typed: str, cwd: Path | None = None, stderr: int | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=cwd, input=typed, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False
        )
    except FileNotFoundError as exc:
        raise BackupError(f"There is no command {command[0]} here. Install it first.") from exc
