"""Tests that each rank is interrupted and recovered independently, so one rank's failure does not affect the others."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from farandole.driver.kernels import group as groups
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import Cell, RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import CONNECTION_LOST, Reply
from farandole.driver.workers.worker import GONE
from farandole.exceptions import RankError, WorkerStartError


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
    """A rank whose cell runs until the rank is interrupted or marked as dead."""

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


async def test_an_unreachable_worker_does_not_delay_other_ranks():
    group = RankGroup()
    group.assign_ranks([Rank(Unreachable(), "a", slot=0), Rank(Prompt(), "b", slot=0)])
    cell = asyncio.create_task(group.run(Cell(code="pass", sink=lambda *_: None), group.kernels, together=False))
    await asyncio.sleep(0)
    await group.interrupt(together=False)
    replies = await asyncio.wait_for(cell, 5)
    assert [reply.status for reply in replies] == ["dead", "error"]
    assert group.kernels[0].death == GONE


class Counted(Prompt):
    """A worker that counts how many times its rank was interrupted."""

    interrupts = 0

    async def interrupt_kernel(self, kernel_id):
        self.interrupts += 1
        await super().interrupt_kernel(kernel_id)

    async def stop_kernel(self, _kernel_id):
        """Do nothing, because there is no kernel to stop."""


class Leaver(Rank):
    """A rank that leaves the world immediately when asked, and counts how many times it was asked."""

    left = 0

    async def evaluate(self, _expression, **_options):
        self.left += 1
        return Reply(rank=self.rank, worker=self.worker.name, status="ok", ended=time.monotonic())


async def test_hundreds_of_ranks_are_released_once_each_if_one_fails():
    group = RankGroup()
    group.assign_ranks([Leaver(Counted(), str(rank), slot=0) for rank in range(400)])
    cell = asyncio.create_task(group.run(Cell(code="pass", sink=lambda *_: None), group.kernels, together=True))
    await asyncio.sleep(0)
    assert len(group.busy) == 400
    group.kernels[7].worker.interrupted.set()
    replies = await asyncio.wait_for(cell, 10)
    assert [reply.rank for reply in replies] == list(range(400))
    assert {reply.status for reply in replies} == {"error"}
    assert [kernel.worker.interrupts for kernel in group.kernels] == [int(rank != 7) for rank in range(400)]
    assert {kernel.left for kernel in group.kernels} == {1}
    assert group.busy == []


class Late(Counted):
    """A worker whose rank ends its cell only after the second interrupt."""

    async def interrupt_kernel(self, kernel_id):
        self.interrupts += 1
        if self.interrupts == 2:
            self.interrupted.set()


class Joining(Leaver):
    async def subshell(self):
        return "a subshell"


async def test_a_rank_that_is_not_yet_in_the_group_is_released_too():
    group = RankGroup()
    joining = Joining(Late(), "new", slot=0)
    cell = group.begin(joining, joining.execute("pass"))
    await asyncio.wait_for(group.release(together=True), 10)
    assert cell.done()
    assert (joining.left, group.busy) == (1, [])


class Flaky:
    """A rank whose connection breaks during the first calls."""

    def __init__(self, losses):
        self.losses = losses
        self.calls = 0
        self.worker = SimpleNamespace(name="c-w0")
        self.rank = 0

    async def evaluate(self, _expression, *, subshell):
        self.calls += 1
        lost = self.calls <= self.losses
        status, ename = ("error", CONNECTION_LOST) if lost else ("ok", "")
        return Reply(rank=0, worker="c-w0", status=status, ename=ename, ended=0.0, value="found")


@pytest.mark.parametrize(("losses", "repeat", "calls"), [(0, True, 1), (groups.REPEATS, True, groups.REPEATS + 1)])
async def test_a_call_whose_answer_was_lost_is_repeated(losses, repeat, calls):
    rank = Flaky(losses)
    found = await RankGroup().control(rank_calls.identity(), what="x", timeout=9, kernels=[rank], repeat=repeat)
    assert (found, rank.calls) == (["found"], calls)


@pytest.mark.parametrize(("repeat", "calls"), [(False, 1), (True, groups.REPEATS + 1)])
async def test_a_call_is_not_repeated_without_need_or_end(repeat, calls):
    rank = Flaky(1000)
    with pytest.raises(RankError, match="x failed on rank 0"):
        await RankGroup().control(rank_calls.identity(), what="x", timeout=9, kernels=[rank], repeat=repeat)
    assert rank.calls == calls
