"""Tests that a silent rank is reported once when it stops answering, and once when it answers again."""

import asyncio
from types import SimpleNamespace

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.liveness import Liveness
from farandole.driver.kernels.replies import Reply


class Rank(RankKernel):
    """A rank that answers pings only while `answers` is set."""

    def __init__(self, number):
        super().__init__(SimpleNamespace(name=f"c-w{number}"), f"kernel-{number}", slot=0)
        self.rank = number
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = 0
        self.here = True
        self.worker_is_there = True
        self.worker_asked = 0
        self.on_worker_asked = lambda: None

    @property
    def connected(self):
        return self.here

    async def worker_answers(self):
        self.worker_asked += 1
        self.on_worker_asked()
        await asyncio.sleep(0)
        return self.worker_is_there

    async def ping(self):
        self.asked += 1
        await self.answers.wait()
        return Reply(rank=self.rank, worker=self.worker.name, status="ok", ended=0.0)


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def watched(ranks, notices, *, seconds=0.06, warnings=None, **options):
    """Append the notices to a list, and those that are warnings to ``warnings`` as well."""

    def report(text, *, warning=False):
        notices.append(text)
        if warning and warnings is not None:
            warnings.append(text)

    return asyncio.create_task(Liveness(lambda: ranks, report, seconds=seconds, **options).run())


async def test_a_silent_rank_is_reported_once_and_again_when_it_answers():
    ranks, notices, warnings = [Rank(0), Rank(1)], [], []
    ranks[1].answers.clear()
    watch = await watched(ranks, notices, warnings=warnings)
    await until(lambda: notices)
    asked = ranks[0].asked
    # The silent rank does not delay pings to the other rank, and is reported only once.
    await until(lambda: ranks[0].asked > asked + 5)
    [silent] = notices
    assert silent.startswith("rank 1 (worker c-w1) has not answered for 0.06 s: it hangs, its process is stopped, or ")
    assert ranks[1].asked == 1
    ranks[1].answers.set()
    await until(lambda: len(notices) == 2)
    assert notices[1] == "rank 1 (worker c-w1) answers again"
    assert warnings == [silent]
    assert all(rank.alive for rank in ranks)
    watch.cancel()


async def test_a_rank_is_reported_before_it_is_given_up():
    rank, notices, warnings, given_up = Rank(0), [], [], []
    rank.answers.clear()
    watch = await watched([rank], notices, warnings=warnings, give_up=lambda one: given_up.append((one, len(notices))))
    await until(lambda: given_up)
    assert given_up[0] == (rank, 1)
    assert warnings == notices
    watch.cancel()


async def test_no_rank_is_blamed_while_its_worker_does_not_answer_either():
    rank, notices, given_up = Rank(0), [], []
    rank.answers.clear()
    rank.worker_is_there = False
    watch = await watched([rank], notices, give_up=given_up.append)
    await until(lambda: rank.worker_asked > 2)
    assert (notices, given_up) == ([], [])
    rank.worker_is_there = True
    await until(lambda: given_up)
    watch.cancel()


async def test_a_reported_rank_is_not_given_up_when_its_worker_stops_answering():
    rank, notices, given_up = Rank(0), [], []
    rank.answers.clear()
    watch = await watched([rank], notices, give_up=given_up.append)
    await until(lambda: notices)
    rank.worker_is_there = False
    asked = rank.worker_asked
    await until(lambda: rank.worker_asked > asked + 2)
    assert given_up == []
    watch.cancel()


async def test_a_rank_that_answers_last_is_not_reported():
    rank, notices = Rank(0), []
    rank.answers.clear()
    rank.on_worker_asked = rank.answers.set
    watch = await watched([rank], notices)
    await until(lambda: rank.asked > 2)
    assert (rank.worker_asked, notices) == (1, [])
    watch.cancel()


async def test_a_silence_is_reported_soon_after_half_the_time():
    rank, notices = Rank(0), []
    watch = await watched([rank], notices, seconds=6, give_up=lambda _: None)
    # If ranks were checked only every third of the timeout, a report would come up to a third too late.
    # Timers fire in order even under load, so the test is reliable on a busy machine.
    await asyncio.sleep(1.9)
    for _ in range(5):
        await asyncio.sleep(0)
    assert rank.asked == 1
    assert notices == []
    watch.cancel()


async def test_unreachable_ranks_are_not_checked():
    rank, other, notices = Rank(0), Rank(1), []
    rank.here = False
    watch = await watched([rank, other], notices)
    await until(lambda: other.asked > 5)
    assert rank.asked == 0
    assert notices == []
    watch.cancel()
