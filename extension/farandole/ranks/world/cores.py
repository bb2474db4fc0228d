"""A rank's share of the machine's cores."""

from __future__ import annotations

import os
from pathlib import Path

from farandole.ranks import context
from farandole.ranks.preflight.machine import CGROUPS, OWN_CGROUPS, own_cgroups


def share_cores() -> None:
    """Give torch this rank's share of the cores, unless OMP_NUM_THREADS says otherwise.

    With a thread for each core in every rank, threads that spin for each other slow small steps down many times over.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads())


def threads(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return how many threads leave each rank of this machine a core for each of its own.

    Containers of one machine see all its cores, so all its ranks share them, wherever they are; those of one container
    share what it is limited to.
    """
    mine = [float(len(os.sched_getaffinity(0))), *cpu_limits(cgroups, own)]
    return max(1, int(min(min(mine) / context.local_size(), (os.cpu_count() or 1) / context.machine_size())))


def cpu_limits(cgroups: Path, own: Path) -> list[float]:
    """Return how many cores each cgroup around this process may use that has a limit.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst.
    """
    found = []
    for folder, version in own_cgroups("cpu", cgroups, own):
        try:
            if version == 2:
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            limit = int(quota) / int(period)
        except (OSError, ValueError):  # not there, or the word `max`
            continue
        if limit > 0:  # version 1 says -1 where there is none
            found.append(limit)
    return found
