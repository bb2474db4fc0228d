"""Ranks are got back one by one, whatever happens to another."""

import asyncio
import time

from farandole.driver.group import RankGroup
from farandole.driver.kernels import RankKernel, Reply
from farandole.exceptions import WorkerStartError


class Unreachable:
    name = "c-w0"

    async def interrupt_kernel(self, _kernel_id):
        raise WorkerStartError("nobody answers")

    async def stop_kernel(self, _kernel_id):
        raise WorkerStartError("nobody answers")


class Prompt(Unreachable):
    name = "c-w1"

    def __init__(self):
        self.interrupted = asyncio.Event()

    async def interrupt_kernel(self, _kernel_id):
        self.interrupted.set()


class Rank(RankKernel):
    """A rank whose cell lasts until it is interrupted, or known to be dead."""

    async def execute(self, _code, **_options):
        waits = [asyncio.create_task(self._dies())]
        if isinstance(self.worker, Prompt):
            waits.append(asyncio.create_task(self.worker.interrupted.wait()))
        _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        status = "error" if self.alive else "dead"
        return Reply(rank=self.rank, worker=self.worker.name, status=status, ended=time.monotonic())

    async def _dies(self):
        while self.alive:
            await asyncio.sleep(0.01)


async def test_a_worker_that_cannot_be_reached_holds_no_other_rank_up():
    group = RankGroup()
    group.seat([Rank(Unreachable(), "a", slot=0), Rank(Prompt(), "b", slot=0)])
    cell = asyncio.create_task(group.run("pass", group.kernels, lambda *_: None, together=False))
    await asyncio.sleep(0)
    await group.interrupt(together=False)
    replies = await asyncio.wait_for(cell, 5)
    assert [reply.status for reply in replies] == ["dead", "error"]
    assert group.kernels[0].death == "lost: its worker ended or cannot be reached"
