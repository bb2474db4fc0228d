"""Tests that a connection is opened again. test_kernel.py has tests with a real websocket."""

from types import SimpleNamespace

import pytest
from farandole.driver.kernels import connection
from farandole.driver.kernels.connection import Connection
from farandole.exceptions import WorkerStartError

HOUR = 3600.0


class Rank:
    """A kernel and its worker. Each attempt to reach the worker takes an hour, as on a laptop without a network."""

    def __init__(self, refusals):
        self.now = 0.0
        self.refusals = refusals
        self.death = None

    @property
    def alive(self):
        return self.death is None

    def monotonic(self):
        return self.now

    async def find_again(self):
        self.now += HOUR
        return SimpleNamespace()

    async def recover(self, _found):
        pass

    async def kernel_socket(self, *_arguments, **_options):
        self.now += 10
        self.refusals -= 1
        if self.refusals >= 0:
            raise WorkerStartError("no network")
        return SimpleNamespace()

    def mark_dead(self, cause):
        self.death = cause


@pytest.mark.parametrize(("refusals", "found"), [(0, True), (10, True), (12, False)])
async def test_only_the_time_for_opening_a_channel_counts(monkeypatch, refusals, found):
    rank = Rank(refusals)
    monkeypatch.setattr(connection, "time", rank)
    monkeypatch.setattr(connection, "RETRY_SECONDS", 0.0)
    lost = Connection(rank, "kernel", rank)
    await lost._open_again()
    assert (lost.is_ready, rank.alive) == (found, found)
    if not found:
        assert rank.death == "lost: its worker answers, but did not open a channel to its kernel for 120 s"
