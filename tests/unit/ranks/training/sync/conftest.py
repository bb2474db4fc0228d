"""Ranks that are threads of this process, and exchange tensors without a network."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from farandole.ranks import context, run
from farandole.ranks.metrics import reporter
from farandole.ranks.training.sync import exchange
from farandole.ranks.world import collectives, world

SECONDS = 20.0


class RanksInThreads:
    """Runs a function on several ranks at the same time.

    Attributes:
        size: number of ranks.
        sums: the names of all sums and gathers that rank 0 has started.
        records: what the ranks have sent to the driver.
        notices: what the ranks have told the user.
        failing: the error that exchanges raise in place of a result, or None.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.sums: list[str] = []
        self.records: list[dict] = []
        self.notices: list[str] = []
        self.failing: Exception | None = None
        self._own = threading.local()
        self._arrived = threading.Condition()
        self._tensors: dict[tuple[str, int], dict[int, torch.Tensor]] = {}
        self._numbers: Counter[tuple[int, str]] = Counter()

    def rank(self) -> int:
        return getattr(self._own, "rank", 0)

    def run(self, work) -> list:
        """Return the results of ``work(rank)``, by rank."""

        def as_rank(rank):
            self._own.rank = rank
            return work(rank)

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(as_rank, range(self.size)))

    def change_world(self, size: int) -> None:
        """Form a world of another size. What earlier ranks have sent is lost."""
        world.current().times_left += 1
        self.size, self.failing = size, None
        self._tensors.clear()
        self._numbers.clear()

    def start_sum(self, tensor, name):
        wait = self._start(tensor, name)
        return lambda: torch.stack(wait()).sum(0, dtype=tensor.dtype)

    def start_gather(self, tensor, name):
        wait = self._start(tensor, name)
        return lambda: torch.stack(wait())

    def gather_bytes(self, data):
        wait = self._start(torch.tensor(list(data), dtype=torch.uint8), "bytes")
        return [bytes(one.tolist()) for one in wait()]

    def broadcast_bytes(self, data, root):
        return self.gather_bytes(data)[root]

    def _start(self, tensor, name):
        rank = self.rank()
        if rank == 0 and name != "bytes":
            self.sums.append(name)
        with self._arrived:
            self._numbers[rank, name] += 1
            place = self._tensors.setdefault((name, self._numbers[rank, name]), {})
            place[rank] = tensor.clone()
            self._arrived.notify_all()

        def wait():
            with self._arrived:
                if self.failing:
                    raise self.failing
                assert self._arrived.wait_for(lambda: len(place) == self.size, SECONDS), f"{name}: a rank is missing"
            return [place[rank] for rank in range(self.size)]

        return wait


@pytest.fixture
def ranks(monkeypatch):
    """Three ranks."""
    found = RanksInThreads(3)
    monkeypatch.setattr(context, "rank", found.rank)
    monkeypatch.setattr(context, "size", lambda: found.size)
    monkeypatch.setattr(exchange, "start_sum", found.start_sum)
    monkeypatch.setattr(exchange, "start_gather", found.start_gather)
    monkeypatch.setattr(collectives, "gather_bytes", found.gather_bytes)
    monkeypatch.setattr(collectives, "broadcast_bytes", found.broadcast_bytes)
    monkeypatch.setattr(reporter, "send", found.records.append)
    monkeypatch.setattr(run, "notice", found.notices.append)
    return found
