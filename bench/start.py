"""From nothing to the first all-reduce of two ranks, with Horovod, against ipyparallel and the same by hand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from farandole.driver.world.backends.base import LOOPBACK, Endpoint, RankAssignment
from farandole.driver.world.backends.horovod import HorovodBackend, slot
from farandole.server.worker.rendezvous import Rendezvous

from bench.notebook import farandole, make_shell, px, seconds, silence
from bench.record import Record, ratio_of_pairs
from bench.site import bench_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

RANKS = 2
CELL = """
import torch, horovod.torch as hvd
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
"""


def measure(repeats: int) -> Iterator[Record]:
    """Yield start_ratio_2."""
    shell, rendezvous = make_shell(), Rendezvous()
    with bench_hub():
        theirs(shell, rendezvous)  # warms the file cache for both
        pairs = [(ours(shell), theirs(shell, rendezvous)) for _ in range(repeats)]
    yield ratio_of_pairs("start_ratio_2", pairs, limit="<= 1.0", note="s")


def ours(shell: InteractiveShell) -> float:
    """Return the seconds that a cluster of two workers on the hub and its first all-reduce take."""
    start = time.perf_counter()
    with farandole(shell, f"--workers {RANKS} --backend horovod"):
        seconds(shell, "distributed", "", CELL)
        return time.perf_counter() - start


def theirs(shell: InteractiveShell, rendezvous: Rendezvous) -> float:
    """Return the seconds that two engines, Horovod's set-up on them and the same all-reduce take."""
    start = time.perf_counter()
    with px(RANKS) as view:
        port = rendezvous.open([slot(assignment(rank)) for rank in range(RANKS)], LOOPBACK)
        endpoint = Endpoint(host=LOOPBACK, port=port)
        backend, assignments = HorovodBackend(), map(assignment, range(RANKS))
        environments = [backend.environment(one, endpoint, interface="lo") for one in assignments]
        with silence():
            view.scatter("environment", environments, flatten=True).get()
        setup = "import os; os.environ.update(environment)\nimport horovod.torch as hvd; hvd.init()\n"
        seconds(shell, "px", "--block", setup + CELL)
        return time.perf_counter() - start


def assignment(rank: int) -> RankAssignment:
    """Return the place of a rank, all on this machine."""
    return RankAssignment(
        rank=rank,
        size=RANKS,
        local_rank=rank,
        local_size=RANKS,
        cross_rank=0,
        cross_size=1,
        machine_size=RANKS,
        worker="bench",
        address=LOOPBACK,
    )
