"""Tests when hints about ranks that wait for others are given, and what they say."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from farandole.driver.kernels import waits
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.kernels.waits import WaitHints

SECONDS = 0.04
SLEEP = {"place": "cell 4, line 5", "doing": "time.sleep"}
REDUCE = {"call": "dist.all_reduce", "place": "cell 4, line 7", "doing": "dist.all_reduce", "mark": "[3] None"}
BARRIER = {"call": "dist.barrier", "place": "cell 4, line 9", "doing": "dist.barrier", "mark": "[4] None"}
ADVICE = "If they will not make the same call, interrupt the cell."


class Rank(RankKernel):
    """A rank that sends `found` when it is asked what it is doing. If `found` is None, it does not answer."""

    def __init__(self, found):
        super().__init__(SimpleNamespace(name="c-w0"), "kernel", slot=0)
        self.found = found
        self.asked = 0
        self.cell = asyncio.Event()

    @property
    def connected(self):
        return True

    async def side_subshell(self):
        return "side"

    async def evaluate(self, expression, *, subshell=None):
        assert (subshell, "activity()" in expression) == ("side", True)
        self.asked += 1
        if self.found is None:
            await asyncio.Event().wait()
        found = self.found() if callable(self.found) else self.found
        value = {"call": "", "place": "", "doing": "", "mark": "", "cpu": 0.0, "outside": False, **found}
        return Reply(rank=self.rank, worker="c-w0", status="ok", ended=0.0, value=json.loads(json.dumps(value)))

    async def run(self):
        await self.cell.wait()


class Cell:
    """A cell that runs on ranks, and the hints that were given."""

    def __init__(self, ranks, *, on=None, backend="torch", **options):
        self.hints, self.ranks, self.group = [], ranks, RankGroup()
        self.group.assign_ranks(ranks)
        for rank in ranks if on is None else on:
            self.group.begin(rank, rank.run())
        self._over = asyncio.Event()
        hints = WaitHints(self.group, self.hints.append, backend=lambda: backend, seconds=SECONDS, **options)
        self._task = asyncio.create_task(hints.during(self._over.wait()))

    async def until_hinted(self, hints=1):
        async with asyncio.timeout(20):
            while len(self.hints) < hints:
                await asyncio.sleep(SECONDS / 10)
        return self.hints[-1]

    async def until_asked(self, times):
        async with asyncio.timeout(20):
            while self.ranks[0].asked < times:
                await asyncio.sleep(SECONDS / 10)

    async def end(self):
        self._over.set()
        await self._task


def turns(*found):
    """Return a function that returns each of the values in turn, again and again."""
    at = iter(range(1_000_000))
    return lambda: found[next(at) % len(found)]


def asking():
    """Return the number of tasks that ask ranks what they are doing."""
    return sum(task.get_coro().__qualname__ == "WaitHints._run" for task in asyncio.all_tasks())


async def test_a_hint_says_which_ranks_wait_where_and_which_do_not():
    cell = Cell([Rank(REDUCE), Rank(SLEEP), Rank(REDUCE), Rank(REDUCE)])
    assert await cell.until_hinted() == (
        "ranks 0, 2-3 wait in dist.all_reduce (cell 4, line 7); "
        f"rank 1 does not: it is in cell 4, line 5 (time.sleep). {ADVICE}"
    )


async def test_a_situation_is_hinted_at_once_although_the_other_ranks_move():
    other = Rank(turns(SLEEP, {"place": "cell 4, line 6", "doing": "evaluate"}))
    cell = Cell([Rank(REDUCE), other])
    await cell.until_hinted()
    await cell.until_asked(7)
    assert len(cell.hints) == 1


async def test_a_wait_in_another_place_and_a_wait_of_another_rank_get_another_hint():
    one, other = Rank(REDUCE), Rank(SLEEP)
    cell = Cell([one, other])
    await cell.until_hinted()
    one.found = BARRIER
    assert (await cell.until_hinted(2)).startswith("rank 0 waits in dist.barrier (cell 4, line 9); rank 1 does not: ")
    one.found, other.found = SLEEP, BARRIER
    assert (await cell.until_hinted(3)).startswith("rank 1 waits in dist.barrier (cell 4, line 9); rank 0 does not: ")


async def test_a_rank_that_joins_a_wait_which_has_been_named_causes_no_hint():
    late = Rank(SLEEP)
    cell = Cell([Rank(REDUCE), late, Rank(SLEEP)])
    await cell.until_hinted()
    late.found = REDUCE
    await cell.until_asked(cell.ranks[0].asked + 5)
    assert len(cell.hints) == 1


@pytest.mark.parametrize(
    "found",
    [
        [REDUCE, REDUCE],
        [SLEEP, SLEEP],
        # The same collective in two branches of the code.
        [REDUCE, {**REDUCE, "place": "cell 4, line 8"}],
        # A rank that is in another iteration each time, and one that computes.
        [turns(REDUCE, {**REDUCE, "mark": "[4] None"}), SLEEP],
        [turns(REDUCE, {**REDUCE, "cpu": SECONDS}), SLEEP],
        # A rank that has not joined the world of an elastic run yet.
        [REDUCE, {**SLEEP, "outside": True}],
    ],
)
async def test_ranks_that_make_progress_or_all_wait_cause_no_hint(found):
    cell = Cell([Rank(one) for one in found])
    await cell.until_asked(5)
    assert cell.hints == []


async def test_two_different_collectives_are_named():
    cell = Cell([Rank(REDUCE), Rank(BARRIER)])
    expected = "rank 0 waits in dist.all_reduce (cell 4, line 7); rank 1 waits in dist.barrier (cell 4, line 9)."
    assert await cell.until_hinted() == f"{expected} {ADVICE}"


async def test_ranks_without_the_cell_are_named():
    waiting, done, absent, silent = Rank(REDUCE), Rank(SLEEP), Rank(SLEEP), Rank(None)
    done.cell.set()
    cell = Cell([waiting, done, absent, silent], on=[waiting, done, silent])
    assert await cell.until_hinted() == (
        "rank 0 waits in dist.all_reduce (cell 4, line 7); rank 1 does not: it has ended the cell; "
        f"rank 2 does not: it does not run the cell; rank 3 does not: it does not answer. {ADVICE}"
    )
    assert done.asked == absent.asked == 0


async def test_a_library_that_makes_the_collective_is_named():
    trainer = {"place": "cell 4, line 7", "doing": "trainer.train"}
    cell = Cell([Rank({**REDUCE, **trainer}), Rank(trainer), Rank(trainer)])
    assert (await cell.until_hinted()).startswith(
        "rank 0 waits in dist.all_reduce (cell 4, line 7, trainer.train); "
        "ranks 1-2 do not: they are in cell 4, line 7 (trainer.train)."
    )


async def test_a_hint_about_many_ranks_names_the_largest_groups():
    others = [Rank({"place": f"cell 4, line {max(one, 9)}", "doing": "f"}) for one in range(40)]
    cell = Cell([Rank(REDUCE), *others])
    hint = await cell.until_hinted()
    assert "ranks 1-10 do not: they are in cell 4, line 9 (f)" in hint
    assert hint.count("does not") == waits.MOST_GROUPS - 1


async def test_ranks_are_not_asked_with_backend_none_nor_after_the_cell():
    cell = Cell([Rank(REDUCE), Rank(SLEEP)], backend="none")
    other = Cell([Rank(REDUCE), Rank(SLEEP)])
    await other.until_asked(2)
    assert cell.ranks[0].asked == 0
    assert asking() == 2
    await other.end()
    await asyncio.sleep(0)
    assert asking() == 1


class Clock:
    """A clock that advances only when `WaitHints` sleeps, so that a cell of minutes takes no time."""

    def __init__(self, monkeypatch):
        self.now, self.end, self.pauses = 0.0, float("inf"), []
        self._sleep = asyncio.sleep
        monkeypatch.setattr(waits.asyncio, "sleep", self.sleep)
        monkeypatch.setattr(waits, "monotonic", lambda: self.now)

    async def sleep(self, seconds):
        if self.now >= self.end:
            await asyncio.Event().wait()
        self.pauses.append(seconds)
        self.now += seconds
        await self._sleep(0)

    async def run_cell(self, ranks, seconds):
        """Let a cell run for a time. Return when each hint was given."""
        group, times, over = RankGroup(), [], asyncio.Event()
        group.assign_ranks(ranks)
        for rank in ranks:
            group.begin(rank, rank.run())
        self.end = seconds
        hints = WaitHints(group, lambda _: times.append(self.now), backend=lambda: "torch")
        task = asyncio.create_task(hints.during(over.wait()))
        async with asyncio.timeout(20):
            while self.now < self.end:
                await self._sleep(0)
        over.set()
        await task
        return times


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


async def test_ranks_are_asked_every_five_seconds_and_not_in_short_cells(clock):
    assert await clock.run_cell([Rank(SLEEP), Rank(SLEEP)], 60) == []
    assert clock.pauses == [1, *[5] * 12]


@pytest.mark.parametrize("begin", [0, 2, 12, 17.5, 301])
async def test_a_wait_is_named_ten_to_fifteen_seconds_after_it_began_at_any_time_of_the_cell(clock, begin):
    waiting = Rank(lambda: REDUCE if clock.now >= begin else SLEEP)
    [named] = await clock.run_cell([waiting, Rank(SLEEP)], begin + 120)
    assert 10 <= named - begin <= 15


@pytest.mark.parametrize("seconds", [12, 17, 27, 60])
async def test_waits_in_each_turn_of_a_loop_cause_one_hint(clock, seconds):
    def found():
        turn, within = divmod(clock.now, seconds + 5)
        return {**REDUCE, "mark": f"[{turn}] None"} if within < seconds else SLEEP

    assert len(await clock.run_cell([Rank(found), Rank(SLEEP)], 1800)) == 1


async def test_a_wait_that_lasts_much_longer_than_earlier_ones_in_the_same_place_is_named(clock):
    def found():
        turn = int(clock.now // 30) if clock.now < 300 else 10
        return {**REDUCE, "mark": f"[{turn}] None"} if turn == 10 or clock.now % 30 < 20 else SLEEP

    first, second = await clock.run_cell([Rank(found), Rank(SLEEP)], 600)
    assert 10 <= first <= 15
    assert 330 <= second <= 350
