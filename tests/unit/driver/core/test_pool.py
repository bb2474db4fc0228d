"""Tests that a cluster keeps running workers, replaces lost workers together, and cleans up after a failed start."""

import asyncio

import pytest
from farandole.driver.core.pool import WORKERS_AT_ONCE, WorkerHandle, WorkerPool
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.workers.journal import WorkerJournal
from farandole.driver.workers.worker import Worker, WorkerInfo
from farandole.exceptions import WorkerStartError


class Server(Worker):
    """A worker that refuses the first ``refuses`` requests. If it is ``full``, replacing one of its kernels fails."""

    def __init__(self, name, *, refuses=0, on_hub=True, full=False):
        super().__init__(name=name, url="", token="", session=None, presence=self.listed)
        self.refuses, self.on_hub, self.full = refuses, on_hub, full
        self.stopped = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def info(self):
        raise AssertionError("unexpected request after a single refusal")

    async def records(self):
        await self.gate.wait()
        if self.refuses:
            self.refuses -= 1
            raise WorkerStartError("503")
        return WorkerJournal(kernels=(), records=())

    async def listed(self):
        return self.on_hub

    async def stop_kernel(self, kernel_id):
        if self.full:
            raise WorkerStartError("no memory is left")
        self.stopped.append(kernel_id)


class Source:
    def __init__(self):
        self.stopped = []

    async def stop(self, names):
        self.stopped += names


class Staffed(WorkerPool):
    """A WorkerPool whose workers start immediately, and whose kernels need no connection."""

    def __init__(self, *servers):
        self.source = Source()
        super().__init__("c", self.source, hear=lambda *_: None, on_notice=lambda _: None)
        self.all = [self.handle(server) for server in servers]

    @staticmethod
    def handle(server):
        info = WorkerInfo(worker=server.name, ranks=2, profile="", host="", address="", node="", backends=("torch",))
        return WorkerHandle(
            worker=server, info=info, kernels=[RankKernel(server, f"old-{slot}", slot=slot) for slot in (0, 1)]
        )

    async def _kernel(self, worker, slot, kernel_id=None, idle_seconds=0.0):
        return RankKernel(worker, f"new-{slot}", slot=slot)

    async def _start(self, names, progress):
        return [self.handle(Server(name)) for name in names]


def ids(handle):
    return [kernel.kernel_id for kernel in handle.kernels]


async def test_a_worker_that_refuses_once_keeps_its_other_ranks():
    handles = Staffed(Server("c-w0", refuses=1))
    handles.kernels[1].mark_dead("killed")
    await handles.refill(lambda _: None)
    assert handles.source.stopped == []
    assert ids(handles.all[0]) == ["old-0", "new-1"]
    assert handles.all[0].worker.stopped == ["old-1"]


async def test_lost_workers_are_replaced_together():
    servers = [Server("c-w0", refuses=99, on_hub=False), Server("c-w1"), Server("c-w2", refuses=99, on_hub=False)]
    handles = Staffed(*servers)
    for kernel in handles.kernels:
        kernel.mark_dead("killed")
    await handles.refill(lambda _: None)
    assert handles.source.stopped == ["c-w0", "c-w2"]
    assert [ids(handle) for handle in handles.all] == [["old-0", "old-1"], ["new-0", "new-1"], ["old-0", "old-1"]]
    assert all(kernel.alive for kernel in handles.kernels)


async def test_a_slow_worker_does_not_delay_others():
    slow, quick = Server("c-w0"), Server("c-w1")
    slow.gate.clear()
    handles = Staffed(slow, quick)
    for kernel in handles.kernels:
        kernel.mark_dead("killed")
    refill = asyncio.create_task(handles.refill(lambda _: None))
    async with asyncio.timeout(20):
        while ids(handles.all[1]) != ["new-0", "new-1"]:
            await asyncio.sleep(0.005)
    assert not refill.done()
    slow.gate.set()
    await refill
    assert ids(handles.all[0]) == ["new-0", "new-1"]


async def test_a_worker_without_room_is_reported_after_the_others_are_complete():
    handles = Staffed(Server("c-w0", full=True), Server("c-w1", refuses=99, on_hub=False))
    for kernel in handles.kernels:
        kernel.mark_dead("killed")
    with pytest.raises(WorkerStartError, match="no memory is left"):
        await handles.refill(lambda _: None)
    assert [kernel.alive for kernel in handles.kernels] == [False, False, True, True]


class Many(Source):
    """A source of many workers. It records the largest number of workers that were identified at the same time."""

    def __init__(self):
        super().__init__()
        self.asked = self.most = 0

    async def start(self, names, _options, _progress, _timeout):
        return [Newcomer(name, self) for name in names]


class Newcomer(Server):
    def __init__(self, name, source):
        super().__init__(name)
        self.source = source

    async def info(self):
        self.source.asked += 1
        self.source.most = max(self.source.most, self.source.asked)
        await asyncio.sleep(0.01)
        self.source.asked -= 1
        return WorkerInfo(worker=self.name, ranks=2, profile="", host="", address="", node="", backends=("torch",))


class Unconnected(WorkerPool):
    """A WorkerPool whose kernels need no connection."""

    async def _kernel(self, worker, slot, kernel_id=None, idle_seconds=0.0):
        return RankKernel(worker, f"new-{slot}", slot=slot)


async def test_hundreds_of_new_workers_are_identified_a_few_at_a_time_and_in_order():
    source, names = Many(), [f"c-w{index}" for index in range(100)]
    handles = Unconnected("c", source, hear=lambda *_: None, on_notice=lambda _: None)
    await handles.start(names, lambda _: None)
    assert source.most == WORKERS_AT_ONCE
    assert handles.names == names
    assert len(handles.kernels) == 200


async def test_only_ranks_that_are_started_after_the_cluster_are_late():
    handles = Unconnected("c", Many(), hear=lambda *_: None, on_notice=lambda _: None)
    await handles.start(["c-w0"], lambda _: None)
    await handles.grow(1, lambda _: None)
    assert [kernel.late for kernel in handles.kernels] == [False, False, True, True]
    handles.kernels[1].mark_dead("killed")
    await handles.refill(lambda _: None)
    assert [kernel.late for kernel in handles.kernels] == [False, True, True, True]


async def test_ranks_that_were_found_are_not_late():
    handles = Unconnected("c", Many(), hear=lambda *_: None, on_notice=lambda _: None)
    worker = Newcomer("c-w0", Many())
    worker.kernels = lambda: asyncio.sleep(0, {0: "k0", 1: "k1"})
    await handles.find([worker])
    assert [kernel.late for kernel in handles.kernels] == [False, False]


class Opened(RankKernel):
    """A kernel that needs no connection, and records whether it was closed."""

    closed = False

    async def close(self):
        self.closed = True


class Starting(WorkerPool):
    """A WorkerPool with three servers. All ranks of the first and some of the second start before the third fails."""

    def __init__(self, *servers):
        self.source = Source()
        self.servers = servers
        self.opened = []
        self.up = asyncio.Event()
        self.source.start = self.give
        super().__init__("c", self.source, hear=lambda *_: None, on_notice=lambda _: None)

    async def give(self, names, options, progress, timeout):
        for server in self.servers:
            server.info = self.break_down if server is self.servers[-1] else self.inform
        return list(self.servers)

    async def inform(self):
        return Staffed.handle(self.servers[0]).info

    async def break_down(self):
        await self.up.wait()
        raise WorkerStartError("it has died")

    async def _kernel(self, worker, slot, kernel_id=None, idle_seconds=0.0):
        if slot and worker is self.servers[1]:
            self.up.set()
            # This kernel is still starting when the third server fails.
            await asyncio.Event().wait()
        self.opened.append(Opened(worker, f"new-{slot}", slot=slot))
        return self.opened[-1]


async def test_a_failed_start_leaves_no_connection_open():
    handles = Starting(Server("c-w0"), Server("c-w1"), Server("c-w2"))
    before = asyncio.all_tasks()
    with pytest.raises(WorkerStartError, match="it has died"):
        await handles.start(["c-w0", "c-w1", "c-w2"], lambda _: None)
    assert [kernel.closed for kernel in handles.opened] == [True] * 3
    assert handles.source.stopped == ["c-w0", "c-w1", "c-w2"]
    assert asyncio.all_tasks() == before
