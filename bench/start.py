"""Compare the time to start two ranks and run a Horovod all-reduce on them with the time that ipyparallel needs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from farandole.driver.workers.worker import WorkerInfo
from farandole.driver.world.backends.base import LOOPBACK, Endpoint, assign_ranks
from farandole.driver.world.backends.horovod import HorovodBackend, slot
from farandole.server.worker.rendezvous import Rendezvous

from bench.notebook import farandole, make_shell, px, seconds, silence
from bench.record import Record, ratio_of_pairs
from bench.site import bench_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

RANKS = 2
WORKER = WorkerInfo(worker="bench", ranks=RANKS, profile="", host="", address="", node="", backends=())
ASSIGNMENTS = assign_ranks([WORKER] * RANKS)
CELL = """
import torch, horovod.torch as hvd
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
"""


def measure(repeats: int) -> Iterator[Record]:
    """Yield the record start_ratio_2."""
    shell, rendezvous = make_shell(), Rendezvous()
    with bench_hub():
        theirs(shell, rendezvous)  # warms up the file cache for both sides
        pairs = [(ours(shell), theirs(shell, rendezvous)) for _ in range(repeats)]
    yield ratio_of_pairs("start_ratio_2", pairs, limit="<= 1.0", note="s")


def ours(shell: InteractiveShell) -> float:
    """Return how many seconds it takes to start two workers on the hub and run an all-reduce."""
    start = time.perf_counter()
    with farandole(shell, f"--workers {RANKS} --backend horovod"):
        seconds(shell, "distributed", "", CELL)
        return time.perf_counter() - start


def theirs(shell: InteractiveShell, rendezvous: Rendezvous) -> float:
    """Return how many seconds it takes to start two ipyparallel engines, initialize Horovod and run an all-reduce."""
    start = time.perf_counter()
    with px(RANKS) as view:
        port = rendezvous.open([slot(one) for one in ASSIGNMENTS], LOOPBACK)
        endpoint = Endpoint(port=port, interface="lo")
        environments = [HorovodBackend().environment(one, endpoint) for one in ASSIGNMENTS]
        with silence():
            view.scatter("environment", environments, flatten=True).get()
        setup = "import os; os.environ.update(environment)\nimport horovod.torch as hvd; hvd.init()\n"
        seconds(shell, "px", "--block", setup + CELL)
        return time.perf_counter() - start
