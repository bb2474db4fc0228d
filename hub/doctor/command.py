"""Runs the programs that the checks need."""

from __future__ import annotations

import subprocess


def output(*command: str, seconds: float) -> str | None:
    """Return the output of a command; None if it is missing, may not be executed, fails or times out."""
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else answer.stdout
