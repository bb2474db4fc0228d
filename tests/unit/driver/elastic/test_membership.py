"""The ranks of an elastic run are asked and brought together, and those killed that cannot be."""

import asyncio

from farandole.driver.elastic.host import ElasticTimeouts
from farandole.driver.kernels import rank_calls
from farandole.driver.options import Elastic
from farandole.exceptions import WorkerStartError
from farandole.ranks.world import membership

from tests.elastic_host import TIMEOUTS, FakeHost, Rank, until


async def test_a_rank_is_asked_again_whose_answer_a_broken_connection_has_swallowed():
    host = FakeHost(2, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[1].breaks = 2
    assert await host.agent.membership.call_or_kill(host.ranks, rank_calls.pause_at_next_commit()) == dict.fromkeys(
        host.ranks, 7
    )
    assert all(rank.alive for rank in host.ranks)
    host.finish()
    assert len(await run) == 2


async def test_a_rank_whose_death_is_known_after_the_break_is_replaced_too():
    fresh = Rank(9)
    host = FakeHost(3, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    dying = host.ranks[1]
    dying.deaf = True
    host.ranks[2].say(failed=True, why="torn")
    await until(lambda: dying.asked)
    host.spare = [fresh]
    dying.mark_dead("killed")
    await until(lambda: fresh in host.agent.membership.joining)
    await until(lambda: host.notices)
    assert host.notices == ["rank 1 (worker c-w1) was lost: killed: continuing with 2 ranks from step 70"]
    host.finish()
    assert len(await run) == 2


async def test_a_rank_that_cannot_be_reached_does_not_hold_the_others_up():
    host = FakeHost(3, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[1].opened.clear()
    host.ranks[1].deaf = True
    host.ranks[2].mark_dead("killed")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w0"]]
    host.finish()
    assert [reply.worker for reply in await run] == ["c-w0"]


async def test_while_none_can_be_reached_none_is_taken_for_lost():
    host = FakeHost(2, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    for rank in host.ranks:
        rank.opened.clear()
    host.ranks[0].say(failed=True, why="torn")
    assert not await host.agent.membership.wait_until(lambda: host.worlds, 10 * TIMEOUTS.interrupt)
    for rank in host.ranks:
        rank.opened.set()
    await until(lambda: host.notices)
    assert host.worlds == [["c-w0", "c-w1"]]
    assert all(rank.alive for rank in host.ranks)
    host.finish()
    assert len(await run) == 2


async def test_whoever_cannot_be_interrupted_is_not_lost_for_that():
    host = FakeHost(3, Elastic(), interrupt=20)
    late = host.ranks[1]
    late.deaf = True

    def refuse():
        asyncio.get_running_loop().call_later(0.05, lambda: late.say(failed=True, why="torn"))
        raise WorkerStartError("503")

    late.on_interrupt = refuse
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].mark_dead("killed")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w1", "c-w2"]]
    assert late.alive
    host.finish()
    assert len(await run) == 2


async def test_a_rank_whose_connections_cannot_be_cut_is_interrupted_all_the_same():
    host = FakeHost(3, Elastic(), abandon=1, interrupt=20)
    late = host.ranks[1]
    late.deaf = late.blocks = True
    late.on_interrupt = lambda: late.say(failed=True, why="interrupted")
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].mark_dead("killed")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w1", "c-w2"]]
    assert not late.aside_free.is_set()
    host.finish()
    assert len(await run) == 2


async def test_a_rank_that_is_silent_may_be_so_as_long_as_the_user_says():
    host = FakeHost(3, Elastic(), hung=60)
    silent = host.ranks[1]
    silent.deaf = True
    silent.answers.clear()
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].mark_dead("killed")
    assert not await host.agent.membership.wait_until(lambda: not silent.alive, 10 * TIMEOUTS.interrupt)
    silent.say(failed=True, why="torn")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w1", "c-w2"]]
    host.finish()
    assert len(await run) == 2


async def test_a_rank_is_asked_once_more_whose_answer_the_driver_may_not_have_read():
    host = FakeHost(2, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[1].slow = 60.0
    assert await host.agent.membership.call_or_kill(
        host.ranks, rank_calls.pause_at_next_commit(), seconds=0.1
    ) == dict.fromkeys(host.ranks, 7)
    assert all(rank.alive for rank in host.ranks)
    host.finish()
    assert len(await run) == 2


def test_the_agents_timeouts_are_longer_than_the_ranks():
    timeouts = ElasticTimeouts()
    assert timeouts.leave > membership.PEERS_SECONDS
    assert 2 * timeouts.pause <= membership.PAUSE_SECONDS
    assert timeouts.call <= timeouts.pause
    assert ElasticTimeouts(hung=600).call == 600


async def test_a_rank_that_does_not_come_is_killed():
    host = FakeHost(3, Elastic(), hung=60)
    host.ranks[2].deaf = True
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].mark_dead("killed")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w1"]]
    assert "rank 2 (worker c-w2) was lost: stopped, because it did not answer" in host.notices[0]
    host.finish()
    assert [reply.worker for reply in await run] == ["c-w1"]


async def test_a_rank_that_was_killed_is_lost_though_its_end_is_still_being_read():
    host = FakeHost(3, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[1].deaf = True
    host.ranks[1].end = lambda *_, **__: None
    host.ranks[2].say(failed=True, why="torn")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w0", "c-w2"]]
    assert "rank 1 (worker c-w1) was lost: stopped, because it did not answer" in host.notices[0]
    host.finish()
    assert [reply.worker for reply in await run] == ["c-w0", "c-w2"]
