"""Trains the bench's model on hosts with slow links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farandole import Cluster

from bench.network import parameters
from bench.notebook import silence
from bench.site import quiet

if TYPE_CHECKING:
    from farandole import Run

CONFIG = Path(__file__).parent / "jupyterhub_config.py"
LOOPS = Path(__file__).parent.parent / "loops"
MODEL = (LOOPS / "network_model.py").read_text(encoding="utf-8")
STEPS = (LOOPS / "network_step.py").read_text(encoding="utf-8")


def start(hosts: int) -> Cluster:
    """Start a cluster with one rank on each host."""
    with silence():
        return Cluster.start(hosts, name=f"net{hosts}", ranks=1, backend="torch", progress=quiet)


def step_time(
    cluster: Cluster, sync: str, *, name: str, steps: int = parameters.STEPS, straggler: float = 1
) -> tuple[float, Run]:
    """Return the seconds of a step on the slowest rank, and the run.

    The last rank is ``straggler`` times slower, and then it does not count.
    """
    several = cluster.size > 1
    names = {
        "COMPUTE": parameters.COMPUTE_SECONDS,
        "FIRST_STEPS": parameters.FIRST_STEPS_OF_AUTO if begins_slowly(sync) else parameters.FIRST_STEPS,
        "STEPS": parameters.SLOW_STEPS if several and sync in parameters.EACH_STEP else steps,
        "STRAGGLER": straggler,
    }
    lines = [f"{one} = {value}" for one, value in names.items()]
    run = cluster.train("\n".join([*lines, "import farandole as fd", f"SYNC = {sync}", MODEL, STEPS]), name=name)
    counted = range(cluster.size if straggler == 1 else cluster.size - 1)
    return max(float(run.results[rank]) for rank in counted), run


def begins_slowly(sync: str) -> bool:
    """Return whether ranks wait for an average after each of their first steps, to measure or to warm up."""
    return sync.startswith(("fd.sync.auto", "fd.sync.local")) and "warmup=0" not in sync
