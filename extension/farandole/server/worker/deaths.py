"""The cause of the end of a rank's process, as far as the host reports it."""

from __future__ import annotations

import signal
from pathlib import Path

MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")
VMSTAT = Path("/proc/vmstat")


def oom_kills() -> int:
    """Return how many processes the out-of-memory killer has killed so far, in this cgroup or else on the host.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (``memory.events``) and ``/proc/vmstat``.
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
    """Return why a process has ended; ``returncode`` is negative for a signal, as in `subprocess`."""
    if returncode is None:
        return "ended for an unknown reason"
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    if out_of_memory and returncode == -signal.SIGKILL:
        return "killed by the host because it was out of memory (SIGKILL)"
    return f"killed by signal {-returncode} ({name})"
