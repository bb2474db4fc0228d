"""The ranks of an elastic run are asked and brought together, and those killed that cannot be."""

import asyncio

from farandole.driver.elastic.host import ElasticTimeouts
from farandole.driver.kernels import rank_calls
from farandole.driver.options import Elastic
from farandole.exceptions import WorkerStartError
from farandole.ranks.world import membership

from tests.supervised import PATIENCE, Rank, Workers, until


async def test_a_rank_is_asked_again_whose_answer_a_broken_connection_has_swallowed():
    staff = Workers(2, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].breaks = 2
    assert await staff.supervisor.members.tell(staff.ranks, rank_calls.pause_at_next_commit()) == dict.fromkeys(
        staff.ranks, 7
    )
    assert all(rank.alive for rank in staff.ranks)
    staff.finish()
    assert len(await run) == 2


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
    assert await staff.supervisor.members.tell(
        staff.ranks, rank_calls.pause_at_next_commit(), seconds=0.1
    ) == dict.fromkeys(staff.ranks, 7)
    assert all(rank.alive for rank in staff.ranks)
    staff.finish()
    assert len(await run) == 2


def test_a_supervisor_is_more_patient_than_whom_it_waits_for():
    patience = ElasticTimeouts()
    assert patience.part > membership.PART_SECONDS
    assert 2 * patience.hold <= membership.HOLD_SECONDS
    assert patience.ask <= patience.hold
    assert ElasticTimeouts(hung=600).ask == 600


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


async def test_a_rank_that_was_killed_is_lost_though_its_end_is_still_being_read():
    staff = Workers(3, Elastic())
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.ranks[1].deaf = True
    staff.ranks[1].end = lambda *_, **__: None
    staff.ranks[2].say(failed=True, why="torn")
    await until(lambda: staff.told)
    assert staff.worlds == [["c-w0", "c-w2"]]
    assert "rank 1 (worker c-w1) was lost: stopped, because it did not answer" in staff.told[0]
    staff.finish()
    assert [reply.worker for reply in await run] == ["c-w0", "c-w2"]
