"""Finds out why a rank's process has ended, as far as the host reports the cause."""

from __future__ import annotations

import signal
from pathlib import Path

from farandole.protocol import RESTART_EXIT_CODE, RESTARTED

MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")
VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int:
    """Return how many processes the out-of-memory killer has killed so far.

    The number is for this cgroup if the cgroup reports it, otherwise for the host. Source: ``memory.events`` in the
    Linux documentation, Documentation/admin-guide/cgroup-v2.rst.
    """
    for path in (MEMORY_EVENTS, VMSTAT):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def explain_exit(returncode: int | None, *, out_of_memory: bool) -> str:
    """Return a description of why a process has ended. ``returncode`` is negative for a signal, as in `subprocess`."""
    if returncode is None:
        return "ended for an unknown reason"
    if returncode == RESTART_EXIT_CODE:
        return RESTARTED
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    if out_of_memory and returncode == -signal.SIGKILL:
        return "killed by the host because it was out of memory (SIGKILL)"
    return f"killed by signal {-returncode} ({name})"
