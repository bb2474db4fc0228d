"""Tests for new ranks of an elastic run, failed attempts to join, and workers that stop after their ranks have left."""

import asyncio

from farandole.driver.options import Elastic
from farandole.exceptions import WorkerStartError

from tests.elastic_host import FakeHost, Rank, until


async def test_failures_of_new_ranks_are_reported_and_end_after_three_attempts():
    fresh = Rank(9)
    host = FakeHost(1, Elastic(), spare=[fresh])
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.admit_new_ranks()
    await until(lambda: fresh in host.agent.membership.joining)
    fresh.end("error", ename="NameError", evalue="name 'data' is not defined")
    await until(lambda: len(host.notices) == 3)
    assert all(
        text.startswith("a new rank could not join: its cell ended with NameError: name 'data' is not defin")
        for text in host.notices
    )
    assert [text.rpartition("; ")[2] for text in host.notices] == [
        *["trying again"] * 2,
        "no more attempts",
    ]
    host.agent.admit_new_ranks()
    host.finish()
    assert [reply.worker for reply in await run] == ["c-w0"]
    assert len(host.notices) == 3


async def test_a_request_of_the_user_starts_new_attempts():
    fresh = Rank(9)
    host = FakeHost(1, Elastic(), spare=[fresh])
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.admit_new_ranks()
    await until(lambda: fresh in host.agent.membership.joining)
    fresh.end("ok")
    await until(lambda: len(host.notices) == 3)
    failure = "a new rank could not join: its cell ended before it reached the loop; "
    assert host.notices == [*[f"{failure}trying again"] * 2, f"{failure}no more attempts"]
    fresh.cell = asyncio.get_running_loop().create_future()
    host.agent.retry_new_ranks()
    await until(lambda: fresh in host.agent.membership.joining)
    fresh.say()
    await until(lambda: host.worlds == [["c-w0", "c-w9"]])
    host.finish()
    assert len(await run) == 2


async def test_a_rank_that_joins_resets_the_count_of_failures():
    first, second = Rank(8), Rank(9)
    host = FakeHost(1, Elastic(), spare=[first])
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.admit_new_ranks()
    await until(lambda: first in host.agent.membership.joining)
    host.ranks.remove(first)
    host.spare = [second]
    first.end("error", ename="OSError", evalue="Stale file handle")
    await until(lambda: second in host.agent.membership.joining)
    second.say()
    await until(lambda: host.worlds == [["c-w0", "c-w9"]])
    assert host.agent.membership.refusals == []
    host.finish()
    assert len(await run) == 2


async def test_a_new_rank_that_is_lost_before_it_joins_is_replaced():
    first, second = Rank(8), Rank(9)
    host = FakeHost(1, Elastic(), spare=[first])
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.admit_new_ranks()
    await until(lambda: first in host.agent.membership.joining)
    host.spare = [second]
    first.mark_dead("killed by signal 9 (SIGKILL)")
    await until(lambda: second in host.agent.membership.joining)
    assert host.notices == ["a new rank was lost before it could join: killed by signal 9 (SIGKILL); trying again"]
    second.say()
    await until(lambda: host.worlds == [["c-w0", "c-w9"]])
    host.finish()
    assert len(await run) == 2


async def test_a_new_rank_that_hangs_before_it_joins_is_killed():
    fresh = Rank(9)
    host = FakeHost(1, Elastic(), spare=[fresh])
    run = host.run()
    await until(lambda: host.agent.membership.world)
    fresh.answers.clear()
    host.agent.admit_new_ranks()
    await until(lambda: any("was lost before it could join: stopped" in text for text in host.notices))
    assert not fresh.alive
    host.finish()
    assert len(await run) == 1


async def test_new_ranks_that_wait_at_the_end_of_a_run_are_interrupted_without_a_notice():
    fresh = Rank(9)
    host = FakeHost(2, Elastic(), spare=[fresh])
    run = host.run()
    await until(lambda: host.agent.membership.world)
    survivors = host.ranks[:]
    host.agent.admit_new_ranks()
    await until(lambda: fresh in host.agent.membership.joining)
    for rank in survivors:
        rank.end("ok")
    assert len(await run) == 2
    assert fresh.cell.result().ename == "KeyboardInterrupt"
    assert host.notices == []


async def test_a_worker_that_cannot_be_stopped_is_reported():
    host = FakeHost(2, Elastic())

    async def refuse(_kernels):
        raise WorkerStartError("the hub does not answer")

    host.release = refuse
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.remove([host.ranks[1]])
    await until(lambda: len(host.notices) == 2)
    assert any("may still exist" in text and text.endswith("the hub does not answer") for text in host.notices)
    host.finish()
    assert len(await run) == 1
