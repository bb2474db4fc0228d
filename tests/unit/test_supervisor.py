"""An elastic run as its supervisor sees it, over ranks that answer by the book or do not."""

import asyncio
import re
import time
from dataclasses import replace

import pytest
from farandole.driver.elastic import Elastic
from farandole.driver.group import RankGroup
from farandole.driver.kernels import RankKernel
from farandole.driver.replies import CONNECTION_LOST, Reply
from farandole.driver.staff import Patience, Staff
from farandole.driver.supervisor import Supervisor
from farandole.exceptions import RankDiedError, RankError, WorkerStartError
from farandole.ranks import membership

PATIENCE = Patience(grace=0.05, leave=0.05, interrupt=0.1, hung=0.3, form=5, refill=0.2, retry=0.01)


class Server:
    def __init__(self, name):
        self.name = name

    async def interrupt_kernel(self, _kernel_id):
        return None

    async def stop_kernel(self, _kernel_id):
        return None


class Rank(RankKernel):
    """A rank that trains until the test says otherwise; a deaf one takes no notice of a broken world."""

    def __init__(self, number, *, deaf=False):
        super().__init__(Server(f"c-w{number}"), f"kernel-{number}", slot=0)
        self.supervisor = None
        self.commits, self.deaf = 7, deaf
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

    async def aside(self):
        return "aside"

    async def reachable(self):
        await self.opened.wait()

    @property
    def connected(self):
        return self.opened.is_set()

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
        if function == "hold":
            seconds, self.slow = self.slow, 0.0
            await asyncio.sleep(seconds)
        if function == "part_at":
            self.commits = int(arguments)
        if function == "part_at" or (function == "say_broken" and self._heeds()):
            self.say(failed=False)
        return self.reply("ok" if self.alive else "dead", value=self.commits)

    def _heeds(self):
        return not self.deaf and self not in self.supervisor.members.waiting

    def say(self, **news):
        self.supervisor.members.hear(
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


class Workers(Staff):
    """Seats ranks at once, and has `spare` ones to replace lost ones with."""

    def __init__(self, size, options, *, spare=(), trouble=0, breaks=0, refuses=0, stuck=0, **patience):
        self.group = RankGroup()
        self.ranks = [Rank(number) for number in range(size)]
        self.spare, self.trouble, self.breaks, self.refuses = list(spare), trouble, breaks, refuses
        self.stuck = stuck
        self.worlds, self.told, self.released = [], [], []
        self.group.seat(self.ranks)
        self.supervisor = Supervisor(self, self.group, options, replace(PATIENCE, **patience))

    def run(self):
        return asyncio.create_task(self.supervisor.run(self.ranks[:]))

    async def refill(self):
        if self.trouble:
            self.trouble -= 1
            raise WorkerStartError("no worker can be had")
        self.ranks = [rank for rank in self.ranks if rank.alive] + self.spare
        self.spare = []
        return self.ranks

    async def launch(self, kernel):
        kernel.supervisor = self.supervisor
        cell = asyncio.create_task(kernel.run())
        self.group._cells[kernel] = cell
        return cell

    async def admit(self, kernel, *, rank, size):
        assert (rank, size) == (kernel.rank, rank + 1)
        return await self.launch(kernel)

    async def form(self, kernels):
        if self.refuses:
            self.refuses -= 1
            raise RankError("not all ranks could be asked")
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

    def tell(self, text):
        self.told.append(text)

    def seated(self, workers):
        assert list(workers) == self.worlds[-1]

    def finish(self):
        for kernel in self.supervisor.members.inside:
            kernel.end("ok")


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_the_others_go_on_without_a_lost_rank():
    staff = Workers(3, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].mark_dead("killed by signal 9 (SIGKILL)")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0", "c-w2"]]
    assert staff.told == [
        "rank 1 (worker c-w1) was lost: killed by signal 9 (SIGKILL): going on with 2 ranks from step 70"
    ]
    staff.finish()
    assert [(reply.rank, reply.worker, reply.status) for reply in await run] == [(0, "c-w0", "ok"), (1, "c-w2", "ok")]


async def test_a_rank_is_asked_again_whose_answer_a_broken_connection_has_swallowed():
    staff = Workers(2, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].breaks = 2
    assert await staff.supervisor.members.tell(staff.ranks, "hold") == dict.fromkeys(staff.ranks, 7)
    assert all(rank.alive for rank in staff.ranks)
    staff.finish()
    assert len(await run) == 2


async def test_a_supervisor_takes_ranks_that_wait_from_another():
    staff = Workers(3, Elastic())
    members = staff.supervisor.members
    for rank in staff.ranks[1:]:
        members.add(rank, await staff.launch(rank), inside=True)
        rank.say(formed=True)
        rank.say(failed=True, why="Connection closed by peer")
    run = asyncio.create_task(staff.supervisor.lead())
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w1", "c-w2"]]
    assert "going on with 2 ranks from step 70" in staff.told[0]
    staff.finish()
    assert [reply.status for reply in await run] == ["ok", "ok"]


async def test_the_rule_for_learning_rates_is_told_with_the_size():
    staff = Workers(2, Elastic(lr_rule="linear"))
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].mark_dead("killed")
    await until(lambda: len(staff.told) == 2)
    assert staff.told[1] == "learning rates follow the number of ranks (--lr-rule linear): now for 1 rank"
    staff.finish()
    assert len(await run) == 1


async def test_a_new_rank_joins_at_one_commit_of_all():
    fresh = Rank(9)
    staff = Workers(2, Elastic(), spare=[fresh], trouble=1)
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].commits = 8
    survivors = staff.ranks[:]
    staff.supervisor.take_in()
    await until(lambda: fresh in staff.supervisor.members.joining)
    fresh.say()
    await until(lambda: staff.worlds and len(staff.told) == 2)
    assert [rank.asked for rank in survivors] == [[("hold", ""), ("part_at", "9")]] * 2
    assert staff.worlds == [["c-w0", "c-w1", "c-w9"]]
    assert staff.told == [
        "a lost rank could not be replaced yet, it is tried again: no worker can be had",
        "rank 2 joined: going on with 3 ranks from step 90",
    ]
    staff.finish()
    assert len(await run) == 3


async def test_no_more_ranks_join_than_there_may_be():
    staff = Workers(2, Elastic(max_ranks=2), spare=[Rank(9)])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.take_in()
    await until(lambda: not staff.spare)
    staff.finish()
    assert len(await run) == 2
    assert staff.worlds == []


async def test_ranks_that_have_to_go_leave_at_a_commit_and_their_workers_stop():
    staff = Workers(3, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.part_with([staff.ranks[2]])
    await until(lambda: staff.released)
    assert staff.worlds == [["c-w0", "c-w1"]]
    assert staff.told == ["1 rank left with worker c-w2: going on with 2 ranks from step 80"]
    staff.finish()
    assert len(await run) == 2


async def test_with_too_few_ranks_it_waits_and_gives_up():
    staff = Workers(2, Elastic(min_ranks=2))
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].mark_dead("killed")
    with pytest.raises(
        RankDiedError, match=r"rank 0 \(worker c-w0\) was lost: killed; 1 rank is left, fewer than the 2 "
    ):
        await run
    assert staff.worlds == []


async def test_a_rank_whose_death_is_known_after_the_break_is_replaced_too():
    fresh = Rank(9)
    staff = Workers(3, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    dying = staff.ranks[1]
    dying.deaf = True
    staff.ranks[2].say(failed=True, why="torn")
    await until(lambda: dying.asked)
    staff.spare = [fresh]
    dying.mark_dead("killed")
    await until(lambda: fresh in staff.supervisor.members.joining)
    await until(lambda: staff.told)
    assert staff.told == ["rank 1 (worker c-w1) was lost: killed: going on with 2 ranks from step 70"]
    staff.finish()
    assert len(await run) == 2


async def test_a_new_rank_whose_cell_fails_is_told_and_after_three_no_other_is_tried():
    fresh = Rank(9)
    staff = Workers(1, Elastic(), spare=[fresh])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.take_in()
    await until(lambda: fresh in staff.supervisor.members.joining)
    fresh.end("error", ename="NameError", evalue="name 'data' is not defined")
    await until(lambda: len(staff.told) == 3)
    assert all(
        text.startswith("a new rank could not join, its cell ended with NameError: name 'data' is not defin")
        for text in staff.told
    )
    assert [text.rpartition("; ")[2] for text in staff.told] == [*["it is tried again"] * 2, "no other is tried"]
    staff.supervisor.take_in()
    staff.finish()
    assert [reply.worker for reply in await run] == ["c-w0"]
    assert len(staff.told) == 3


async def test_new_ranks_are_tried_again_once_the_user_asks_for_them():
    fresh = Rank(9)
    staff = Workers(1, Elastic(), spare=[fresh])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.take_in()
    await until(lambda: fresh in staff.supervisor.members.joining)
    fresh.end("ok")
    await until(lambda: len(staff.told) == 3)
    told = "a new rank could not join, its cell ended before it came to the loop; "
    assert staff.told == [*[f"{told}it is tried again"] * 2, f"{told}no other is tried"]
    fresh.cell = asyncio.get_running_loop().create_future()
    staff.supervisor.try_again()
    await until(lambda: fresh in staff.supervisor.members.joining)
    fresh.say()
    await until(lambda: staff.worlds == [["c-w0", "c-w9"]])
    staff.finish()
    assert len(await run) == 2


async def test_a_new_rank_whose_cell_failed_once_may_join_the_next_time():
    first, second = Rank(8), Rank(9)
    staff = Workers(1, Elastic(), spare=[first])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.take_in()
    await until(lambda: first in staff.supervisor.members.joining)
    staff.ranks.remove(first)
    staff.spare = [second]
    first.end("error", ename="OSError", evalue="Stale file handle")
    await until(lambda: second in staff.supervisor.members.joining)
    second.say()
    await until(lambda: staff.worlds == [["c-w0", "c-w9"]])
    assert staff.supervisor.members.refusals == []
    staff.finish()
    assert len(await run) == 2


async def test_all_ranks_may_be_lost_where_others_come():
    fresh = Rank(9)
    staff = Workers(1, Elastic(), spare=[fresh])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].mark_dead("killed")
    await until(lambda: fresh in staff.supervisor.members.joining)
    fresh.commits = 0
    fresh.say()
    await until(lambda: staff.told)
    assert staff.told[0].endswith("killed; rank 0 joined: going on with 1 rank from the beginning")
    staff.finish()
    assert len(await run) == 1


async def test_failures_without_a_commit_in_between_end_the_run():
    staff = Workers(2, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].say(failed=True, why="torn")
    await until(lambda: len(staff.told) == 1)
    staff.ranks[0].say(failed=True, why="torn")
    await until(lambda: len(staff.told) == 2)
    staff.ranks[0].say(failed=True, why="torn")
    with pytest.raises(RankError, match=r"failed 3 times in a row without a commit .* lost their connections \(torn\)"):
        await run
    assert len(staff.worlds) == 2


async def lose_all(staff, times, commits_of):
    """Kill the one rank there is, again and again; each new one brings a copy of a commit."""
    for number in range(times):
        fresh = Rank(10 + number)
        fresh.commits = commits_of(number)
        staff.spare = [fresh]
        staff.supervisor.members.inside[0].mark_dead("killed")
        await until(lambda fresh=fresh: fresh in staff.supervisor.members.joining)
        fresh.say()
        await until(lambda number=number: len(staff.told) == number + 1)


async def test_all_ranks_may_be_lost_again_and_again_where_commits_lie_in_between():
    staff = Workers(1, Elastic(), refill=20)
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    await lose_all(staff, 5, lambda number: 10 * number)
    assert len(staff.worlds) == 5
    staff.finish()
    assert len(await run) == 1


async def test_an_older_copy_is_where_the_next_commits_are_counted_from():
    staff = Workers(1, Elastic(), refill=20)
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    await lose_all(staff, 5, [90, 40, 50, 30, 60].__getitem__)
    staff.finish()
    assert len(await run) == 1


async def test_all_ranks_that_are_lost_without_a_commit_in_between_end_the_run():
    staff = Workers(1, Elastic(), refill=20)
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    await lose_all(staff, 2, lambda _: 7)
    fresh = Rank(20)
    staff.spare = [fresh]
    staff.supervisor.members.inside[0].mark_dead("killed")
    await until(lambda: fresh in staff.supervisor.members.joining)
    fresh.say()
    with pytest.raises(RankError, match=r"failed 3 times in a row without a commit .* was lost: killed"):
        await run


async def test_a_world_that_can_never_be_formed_ends_the_run():
    staff = Workers(2, Elastic(), breaks=1000)
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].say(failed=True, why="torn")
    with pytest.raises(RankError, match=r"could form no world in \d+ attempts .* lost their connections \(torn\)"):
        await run
    assert len(staff.worlds) >= 3
    assert staff.told == []


async def test_ranks_that_form_no_world_in_time_are_brought_back_and_live():
    staff = Workers(3, Elastic(), stuck=1, form=0.1, refill=60)
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[2].mark_dead("killed")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0", "c-w1"]] * 2
    assert staff.told == ["rank 2 (worker c-w2) was lost: killed: going on with 2 ranks from step 70"]
    assert all(rank.alive for rank in staff.ranks)
    staff.finish()
    assert len(await run) == 2


async def test_a_world_that_is_formed_late_is_no_failure_of_the_run():
    staff = Workers(3, Elastic(), refuses=6, refill=60)
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[2].mark_dead("killed")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0", "c-w1"]]
    assert staff.told == ["rank 2 (worker c-w2) was lost: killed: going on with 2 ranks from step 70"]
    staff.finish()
    assert len(await run) == 2


async def test_a_rank_that_was_told_a_world_which_the_others_were_not_is_brought_back():
    staff = Workers(3, Elastic(), refuses=1)
    forming = staff.ranks[0]
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    forming.waits = False
    staff.ranks[2].mark_dead("killed")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0", "c-w1"]]
    asked = [[function for function, _ in rank.asked] for rank in staff.ranks[:2]]
    assert asked[0].count("say_broken") == 2
    assert "waits" in asked[1]
    staff.finish()
    assert len(await run) == 2


async def test_a_rank_that_cannot_be_reached_does_not_hold_the_others_up():
    staff = Workers(3, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].opened.clear()
    staff.ranks[1].deaf = True
    staff.ranks[2].mark_dead("killed")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0"]]
    staff.finish()
    assert [reply.worker for reply in await run] == ["c-w0"]


async def test_while_none_can_be_reached_none_is_taken_for_lost():
    staff = Workers(2, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    for rank in staff.ranks:
        rank.opened.clear()
    staff.ranks[0].say(failed=True, why="torn")
    assert not await staff.supervisor.members.until(lambda: staff.worlds, 10 * PATIENCE.interrupt)
    for rank in staff.ranks:
        rank.opened.set()
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0", "c-w1"]]
    assert all(rank.alive for rank in staff.ranks)
    staff.finish()
    assert len(await run) == 2


async def test_no_rank_parts_before_all_can_be_told():
    fresh = Rank(9)
    staff = Workers(2, Elastic(), spare=[fresh])
    away = staff.ranks[1]
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    away.opened.clear()
    staff.supervisor.take_in()
    await until(lambda: fresh in staff.supervisor.members.joining)
    fresh.say()
    assert not await staff.supervisor.members.until(lambda: staff.ranks[0].asked, 0.3)
    away.opened.set()
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0", "c-w1", "c-w9"]]
    staff.finish()
    assert len(await run) == 3


async def test_a_rank_that_never_heard_where_to_part_is_brought_back():
    staff = Workers(2, Elastic(), part=0.1)
    members = staff.supervisor.members
    for rank in staff.ranks:
        members.add(rank, await staff.launch(rank), inside=True)
        rank.say(formed=True)
    staff.ranks[0].say()
    run = asyncio.create_task(staff.supervisor.lead())
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0", "c-w1"]]
    assert staff.told == ["rank 1 did not part from the others within 0.1 s: going on with 2 ranks from step 70"]
    staff.finish()
    assert len(await run) == 2


async def test_whoever_cannot_be_interrupted_is_not_lost_for_that():
    staff = Workers(3, Elastic(), interrupt=20)
    late = staff.ranks[1]
    late.deaf = True

    def refuse():
        asyncio.get_running_loop().call_later(0.05, lambda: late.say(failed=True, why="torn"))
        raise WorkerStartError("503")

    late.on_interrupt = refuse
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].mark_dead("killed")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w1", "c-w2"]]
    assert late.alive
    staff.finish()
    assert len(await run) == 2


async def test_a_rank_whose_connections_cannot_be_cut_is_interrupted_all_the_same():
    staff = Workers(3, Elastic(), leave=1, interrupt=20)
    late = staff.ranks[1]
    late.deaf = late.blocks = True
    late.on_interrupt = lambda: late.say(failed=True, why="interrupted")
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].mark_dead("killed")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w1", "c-w2"]]
    assert not late.aside_free.is_set()
    staff.finish()
    assert len(await run) == 2


async def test_a_rank_that_is_silent_may_be_so_as_long_as_the_user_says():
    staff = Workers(3, Elastic(), hung=60)
    silent = staff.ranks[1]
    silent.deaf = True
    silent.answers.clear()
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].mark_dead("killed")
    assert not await staff.supervisor.members.until(lambda: not silent.alive, 10 * PATIENCE.interrupt)
    silent.say(failed=True, why="torn")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w1", "c-w2"]]
    staff.finish()
    assert len(await run) == 2


async def test_a_rank_is_asked_once_more_whose_answer_the_driver_may_not_have_read():
    staff = Workers(2, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].slow = 60.0
    assert await staff.supervisor.members.tell(staff.ranks, "hold", seconds=0.1) == dict.fromkeys(staff.ranks, 7)
    assert all(rank.alive for rank in staff.ranks)
    staff.finish()
    assert len(await run) == 2


async def test_who_has_held_for_long_is_asked_again_where_to_part():
    staff = Workers(2, Elastic(), spare=[Rank(9)], hold=0.5)
    staff.ranks[1].slow = 1.0
    first, fresh = staff.ranks[0], staff.spare[0]
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.take_in()
    await until(lambda: fresh in staff.supervisor.members.joining)
    fresh.say()
    await until(lambda: staff.told)
    assert first.asked[:2] == [("hold", "")] * 2
    assert first.asked[-1] == ("part_at", "8")
    assert staff.worlds == [["c-w0", "c-w1", "c-w9"]]
    staff.finish()
    assert len(await run) == 3


def test_a_supervisor_is_more_patient_than_whom_it_waits_for():
    patience = Patience()
    assert patience.part > membership.WORD_SECONDS
    assert 2 * patience.hold <= membership.HOLD_SECONDS
    assert patience.ask <= patience.hold
    assert Patience(hung=600).ask == 600


async def test_a_rank_that_does_not_come_is_killed():
    staff = Workers(3, Elastic(), hung=60)
    staff.ranks[2].deaf = True
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].mark_dead("killed")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w1"]]
    assert "rank 2 (worker c-w2) was lost: stopped, because it did not answer" in staff.told[0]
    staff.finish()
    assert [reply.worker for reply in await run] == ["c-w1"]


async def test_a_rank_that_hangs_is_told_of_and_then_killed():
    staff = Workers(2, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].answers.clear()
    staff.ranks[1].deaf = True
    await until(lambda: len(staff.told) == 2)
    assert staff.worlds == [["c-w0"]]
    assert staff.told[0].startswith("rank 1 (worker c-w1) has not answered for 0.15 s; after 0.15 s more it is taken")
    assert "rank 1 (worker c-w1) was lost: stopped, because it did not answer" in staff.told[1]
    staff.finish()
    assert len(await run) == 1


async def test_how_long_a_rank_may_hang_is_the_users_to_say():
    staff = Workers(1, Elastic())
    supervisor = Supervisor(staff, staff.group, Elastic(hung=0.1))
    staff.supervisor = supervisor
    [rank] = staff.ranks
    rank.answers.clear()
    run = staff.run()
    await until(lambda: staff.told)
    assert "has not answered for 0.05 s" in staff.told[0]
    await until(lambda: not rank.alive)
    run.cancel()
    await asyncio.wait([run])


async def test_a_new_rank_that_is_lost_before_it_joins_is_replaced():
    first, second = Rank(8), Rank(9)
    staff = Workers(1, Elastic(), spare=[first])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.take_in()
    await until(lambda: first in staff.supervisor.members.joining)
    staff.spare = [second]
    first.mark_dead("killed by signal 9 (SIGKILL)")
    await until(lambda: second in staff.supervisor.members.joining)
    assert staff.told == ["a new rank was lost before it could join: killed by signal 9 (SIGKILL); it is tried again"]
    second.say()
    await until(lambda: staff.worlds == [["c-w0", "c-w9"]])
    staff.finish()
    assert len(await run) == 2


async def test_a_new_rank_that_hangs_before_it_joins_is_found():
    fresh = Rank(9)
    staff = Workers(1, Elastic(), spare=[fresh])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    fresh.answers.clear()
    staff.supervisor.take_in()
    await until(lambda: any("was lost before it could join: stopped" in text for text in staff.told))
    assert not fresh.alive
    staff.finish()
    assert len(await run) == 1


async def test_new_ranks_that_wait_at_the_end_of_a_run_are_no_trouble():
    fresh = Rank(9)
    staff = Workers(2, Elastic(), spare=[fresh])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    survivors = staff.ranks[:]
    staff.supervisor.take_in()
    await until(lambda: fresh in staff.supervisor.members.joining)
    for rank in survivors:
        rank.end("ok")
    assert len(await run) == 2
    assert fresh.cell.result().ename == "KeyboardInterrupt"
    assert staff.told == []


async def test_a_worker_that_cannot_be_stopped_is_told_of():
    staff = Workers(2, Elastic())

    async def refuse(_kernels):
        raise WorkerStartError("the hub does not answer")

    staff.release = refuse
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.part_with([staff.ranks[1]])
    await until(lambda: len(staff.told) == 2)
    assert any("may still be there" in text and text.endswith("the hub does not answer") for text in staff.told)
    staff.finish()
    assert len(await run) == 1


async def test_an_error_of_the_users_code_ends_the_run_on_all_ranks():
    staff = Workers(2, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].end("error", ename="ValueError", evalue="boom")
    replies = await run
    assert {(reply.rank, reply.ename) for reply in replies} == {(0, "KeyboardInterrupt"), (1, "ValueError")}
    assert staff.worlds == []


async def test_a_rank_lost_after_the_end_of_another_loses_nothing():
    staff = Workers(2, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[0].end("ok")
    staff.ranks[1].mark_dead("killed")
    assert [reply.worker for reply in await run] == ["c-w0"]
