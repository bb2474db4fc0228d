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


async def test_another_collective_is_another_situation_and_requires_twice_the_time():
    rank = Rank(REDUCE)
    cell = Cell([rank, Rank(SLEEP)])
    await cell.until_hinted()
    rank.found = BARRIER
    assert (await cell.until_hinted(2)).startswith("rank 0 waits in dist.barrier (cell 4, line 9); rank 1 does not: ")


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


async def test_ranks_are_asked_only_when_a_cell_has_run_for_a_while_and_then_after_growing_pauses(monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) > 6:
            await asyncio.Event().wait()

    monkeypatch.setattr(waits.asyncio, "sleep", sleep)
    ranks = [Rank(SLEEP), Rank(SLEEP)]
    group = RankGroup()
    group.assign_ranks(ranks)
    for rank in ranks:
        group.begin(rank, rank.run())
    over = asyncio.Event()
    task = asyncio.create_task(WaitHints(group, print, backend=lambda: "torch").during(over.wait()))
    async with asyncio.timeout(20):
        while len(pauses) <= 6:
            await asyncio.wait([task], timeout=0.01)
    assert pauses == [10, 20, 40, 60, 60, 60, 60]
    over.set()
    await task
