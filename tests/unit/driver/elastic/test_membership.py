"""Tests for calls on the ranks of an elastic run, and for how these ranks are gathered or killed."""

import asyncio

from farandole.driver.elastic.host import ElasticTimeouts
from farandole.driver.kernels import rank_calls
from farandole.driver.options import Elastic
from farandole.exceptions import WorkerStartError
from farandole.ranks.world import membership

from tests.elastic_host import TIMEOUTS, FakeHost, Rank, until


async def test_a_call_is_repeated_if_its_answer_is_lost_with_the_connection():
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


async def test_a_rank_that_is_found_dead_while_others_are_gathered_is_replaced():
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


async def test_a_disconnected_rank_does_not_delay_the_others():
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


async def test_no_rank_is_lost_while_none_is_connected():
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


async def test_a_rank_is_not_lost_if_its_interrupt_fails():
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


async def test_a_rank_is_interrupted_even_if_the_call_to_close_its_connections_blocks():
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


async def test_a_silent_rank_gets_the_full_hung_timeout():
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


async def test_a_call_is_repeated_after_its_timeout():
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


async def test_a_rank_that_does_not_reach_its_waiting_point_is_killed():
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


async def test_a_killed_rank_is_lost_before_its_journal_has_been_read():
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
