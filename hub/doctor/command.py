"""Runs the commands of the machine that the checks need."""

from __future__ import annotations

import subprocess


def output(*command: str, seconds: float) -> str | None:
    """Return the output of a command; None if it is missing, may not run, fails or takes longer."""
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else answer.stdout
