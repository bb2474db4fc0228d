"""A fake `ElasticHost` and fake ranks that can be made to fail, for tests of an elastic run's agent."""

import asyncio
import re
import time
from dataclasses import replace

from farandole.driver.elastic.agent import ElasticAgent
from farandole.driver.elastic.host import ElasticHost, ElasticTimeouts
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import CONNECTION_LOST, Reply
from farandole.exceptions import RankError, WorkerStartError
from farandole.protocol import RESTARTED

TIMEOUTS = ElasticTimeouts(grace=0.05, abandon=0.05, interrupt=0.1, hung=0.3, form=5, replacement=0.2, retry=0.01)


class Server:
    def __init__(self, name):
        self.name = name

    async def interrupt_kernel(self, _kernel_id):
        return None

    async def stop_kernel(self, _kernel_id):
        return None


class Rank(RankKernel):
    """A rank that trains until the test ends its cell.

    A `deaf` rank does not notice that its world is broken. A rank that `shares` a model ends when it leaves its loop.
    """

    def __init__(self, number, *, deaf=False, shares=False):
        super().__init__(Server(f"c-w{number}"), f"kernel-{number}", slot=0)
        self.agent = None
        self.commits, self.deaf, self.shares = 7, deaf, shares
        self.asked = []
        self.breaks = 0
        self.waits = True
        self.slow = 0.0
        self.blocks = False
        self.on_interrupt = None
        self.aside_free = asyncio.Event()
        self.aside_free.set()
        self.opened = asyncio.Event()
        self.opened.set()
        self.answers = asyncio.Event()
        self.answers.set()
        self.cell = asyncio.get_running_loop().create_future()

    async def side_subshell(self):
        return "aside"

    async def reachable(self):
        await self.opened.wait()

    @property
    def connected(self):
        return self.opened.is_set()

    async def worker_answers(self):
        return self.connected

    async def ping(self):
        await self.answers.wait()
        return self.reply("ok")

    async def subshell(self):
        return "another"

    async def evaluate(self, expression, *, subshell=None):
        if self.breaks:
            self.breaks -= 1
            return self.reply("error", ename=CONNECTION_LOST)
        function, arguments = re.search(r"'_'\]\)\.(\w+)\((.*)\)\)$", expression).groups()
        if function == "identity":
            await self.answers.wait()
            return self.reply("ok")
        if subshell == "aside":
            await self.aside_free.wait()
        self.asked.append((function, arguments))
        if function == "abandon" and self.blocks:
            self.aside_free.clear()
        if function == "waits":
            return self.reply("ok", value=self.waits)
        if function == "pause_at_next_commit":
            seconds, self.slow = self.slow, 0.0
            await asyncio.sleep(seconds)
        if function == "leave_at_commit":
            self.commits = int(arguments)
        if function == "leave_at_commit" and self.shares:
            self.mark_dead(RESTARTED)
        elif function == "leave_at_commit" or (function == "mark_world_broken" and self._heeds()):
            self.say(failed=False)
        return self.reply("ok" if self.alive else "dead", value=self.commits)

    def _heeds(self):
        return not self.deaf and self not in self.agent.membership.waiting

    def say(self, **news):
        self.agent.membership.update(
            self,
            {"kind": "member", "formed": False, "failed": False, "why": "", "commits": self.commits}
            | {"step": self.commits * 10}
            | news,
        )

    def mark_dead(self, cause):
        super().mark_dead(cause)
        self.opened.set()
        self.end("dead", evalue=cause)

    async def interrupt(self):
        if self.on_interrupt is not None:
            self.on_interrupt()
        elif not self.deaf:
            self.end("error", ename="KeyboardInterrupt")

    def end(self, status, **details):
        if not self.cell.done():
            self.cell.set_result(self.reply(status, **details))

    def reply(self, status, **details):
        return Reply(rank=self.rank, worker=self.worker.name, status=status, ended=time.monotonic(), **details)

    async def run(self):
        return await self.cell


class FakeHost(ElasticHost):
    """A host that forms worlds immediately, and replaces lost ranks with the ranks in `spare`."""

    def __init__(self, size, options, *, spare=(), trouble=0, breaks=0, refuses=0, stuck=0, shares=False, **timeouts):
        self.group = RankGroup()
        self.ranks = [Rank(number, shares=shares) for number in range(size)]
        self.spare, self.trouble, self.breaks, self.refuses = list(spare), trouble, breaks, refuses
        self.stuck = stuck
        self.worlds, self.notices, self.warnings, self.released = [], [], [], []
        self.group.assign_ranks(self.ranks)
        self.agent = ElasticAgent(self, self.group, options, replace(TIMEOUTS, **timeouts))

    def run(self):
        return asyncio.create_task(self.agent.run(self.ranks[:]))

    async def replace_lost(self):
        if self.trouble:
            self.trouble -= 1
            raise WorkerStartError("no worker is available")
        self.ranks = [rank for rank in self.ranks if rank.alive] + self.spare
        self.spare = []
        return self.ranks

    async def launch(self, kernel):
        kernel.agent = self.agent
        cell = asyncio.create_task(kernel.run())
        self.group._cells[kernel] = cell
        return cell

    async def admit(self, kernel, *, rank, size):
        assert (rank, size) == (kernel.rank, rank + 1)
        return await self.launch(kernel)

    async def form(self, kernels):
        if self.refuses:
            self.refuses -= 1
            raise RankError("not all ranks could be reached")
        self.worlds.append([kernel.worker.name for kernel in kernels])
        if self.breaks:
            self.breaks -= 1
            kernels[0].say(failed=True, why="torn")
            return
        if self.stuck:
            self.stuck -= 1
            kernels[0].say(formed=True)
            return
        for kernel in kernels:
            kernel.say(formed=True)

    async def release(self, kernels):
        self.released += [kernel.worker.name for kernel in kernels]

    def notify(self, text, *, warning=False):
        self.notices.append(text)
        if warning:
            self.warnings.append(text)

    def assigned(self, workers):
        assert list(workers) == self.worlds[-1]

    def finish(self):
        for kernel in self.agent.membership.world:
            kernel.end("ok")


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)
