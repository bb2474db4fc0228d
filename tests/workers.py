"""Fake workers and ranks for tests of a cluster's core. The test controls when they start, compute and stop."""

import asyncio
import time

from farandole.driver.core.pool import WorkerHandle, WorkerPool
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.workers.worker import WorkerInfo, WorkerSource

SOFTWARE = {"packages": {}, "data_sets": {}}
"""The answer of a rank to the call `preload`."""


class Server:
    def __init__(self, name):
        self.name = name


class Rank(RankKernel):
    """A rank that answers calls immediately. Its cell runs until the test ends the cell or interrupts the rank."""

    def __init__(self, worker):
        super().__init__(worker, f"kernel of {worker.name}", slot=0)
        self.over = asyncio.Event()
        self.computes = asyncio.Event()
        self.outcome = "ok"

    async def evaluate(self, expression, *, subshell=None):
        return self.reply("ok", SOFTWARE if ".preload(" in expression else None)

    async def execute(self, code, **_):
        self.computes.set()
        await self.over.wait()
        return self.reply(self.outcome)

    async def interrupt(self):
        self.outcome = "error"
        self.over.set()

    def reply(self, status, value=None):
        return Reply(rank=self.rank, worker=self.worker.name, status=status, ended=time.monotonic(), value=value)


class Hub(WorkerSource):
    """A worker source that starts workers when the test allows it, and lists the existing workers."""

    def __init__(self):
        self.there, self.asked = set(), []
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.starting = asyncio.Event()
        self.stopping = asyncio.Event()
        self.trouble = None

    async def start(self, names, options, progress, timeout):
        self.asked.append(list(names))
        self.there |= set(names)
        self.starting.set()
        try:
            await self.may_start.wait()
        except asyncio.CancelledError:
            self.there -= set(names)
            raise
        return [Server(name) for name in names]

    async def stop(self, names, /):
        self.stopping.set()
        await self.may_stop.wait()
        if self.trouble is not None:
            raise self.trouble
        self.there -= set(names)

    async def find(self, cluster):
        return []

    async def clusters(self):
        return {}

    async def names(self, cluster):
        return sorted(self.there)

    async def close(self):
        return None


class Stubs(WorkerPool):
    """A WorkerPool whose workers have one rank each. The ranks need no connections."""

    async def _handle_of(self, worker, whole, *, found):
        info = WorkerInfo(
            worker=worker.name, ranks=1, profile="", host="h", address="127.0.0.1", node="n", backends=("none",)
        )
        return WorkerHandle(worker=worker, info=info, kernels=[Rank(worker)])
