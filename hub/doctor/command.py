"""Runs external programs for the checks."""

from __future__ import annotations

import subprocess


def output(*command: str, seconds: float) -> str | None:
    """Return a command's standard output, or None if the command is missing, not executable, fails or times out."""
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else answer.stdout
