"""Tests for the agent of an elastic run with fake ranks: lost, new and removed ranks, and errors."""

import asyncio

from farandole.driver.elastic.agent import ElasticAgent
from farandole.driver.options import Elastic

from tests.elastic_host import FakeHost, Rank, until


async def test_the_run_continues_without_a_lost_rank():
    host = FakeHost(3, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[1].mark_dead("killed by signal 9 (SIGKILL)")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w0", "c-w2"]]
    assert host.notices == [
        "rank 1 (worker c-w1) was lost: killed by signal 9 (SIGKILL): continuing with 2 ranks from step 70"
    ]
    assert host.warnings == host.notices
    host.finish()
    assert [(reply.rank, reply.worker, reply.status) for reply in await run] == [(0, "c-w0", "ok"), (1, "c-w2", "ok")]


async def test_an_agent_takes_over_ranks_that_wait():
    host = FakeHost(3, Elastic())
    members = host.agent.membership
    for rank in host.ranks[1:]:
        members.add(rank, await host.launch(rank), in_world=True)
        rank.say(formed=True)
        rank.say(failed=True, why="Connection closed by peer")
    run = asyncio.create_task(host.agent.lead())
    await until(lambda: host.notices)
    assert host.worlds == [["c-w1", "c-w2"]]
    assert "continuing with 2 ranks from step 70" in host.notices[0]
    host.finish()
    assert [reply.status for reply in await run] == ["ok", "ok"]


async def test_a_notice_names_the_rule_for_learning_rates_when_the_size_changes():
    host = FakeHost(2, Elastic(lr_rule="linear"))
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[1].mark_dead("killed")
    await until(lambda: len(host.notices) == 2)
    assert host.notices[1] == "learning rates follow the number of ranks (--lr-rule linear): now for 1 rank"
    assert host.warnings == host.notices[:1]
    host.finish()
    assert len(await run) == 1


async def test_a_new_rank_joins_at_one_commit_of_all():
    fresh = Rank(9)
    host = FakeHost(2, Elastic(), spare=[fresh], trouble=1)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].commits = 8
    survivors = host.ranks[:]
    host.agent.admit_new_ranks()
    await until(lambda: fresh in host.agent.membership.joining)
    fresh.say()
    await until(lambda: host.worlds and len(host.notices) == 2)
    assert [rank.asked for rank in survivors] == [[("pause_at_next_commit", ""), ("leave_at_commit", "9")]] * 2
    assert host.worlds == [["c-w0", "c-w1", "c-w9"]]
    assert host.notices == [
        "a lost rank could not be replaced yet, trying again: no worker is available",
        "rank 2 joined: continuing with 3 ranks from step 90",
    ]
    assert host.warnings == host.notices[:1]
    host.finish()
    assert len(await run) == 3


async def test_removed_ranks_leave_at_a_commit_and_their_workers_stop():
    host = FakeHost(3, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.remove([host.ranks[2]])
    await until(lambda: host.notices)
    assert host.released == ["c-w2"]
    assert host.worlds == [["c-w0", "c-w1"]]
    assert host.notices == ["1 rank left with worker c-w2: continuing with 2 ranks from step 80"]
    assert host.warnings == []
    host.finish()
    assert len(await run) == 2


async def test_a_run_survives_the_loss_of_all_ranks():
    fresh = Rank(9)
    host = FakeHost(1, Elastic(), spare=[fresh])
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].mark_dead("killed")
    await until(lambda: fresh in host.agent.membership.joining)
    fresh.commits = 0
    fresh.say()
    await until(lambda: host.notices)
    assert host.notices[0].endswith("killed; rank 0 joined: continuing with 1 rank from the beginning")
    host.finish()
    assert len(await run) == 1


async def test_no_rank_leaves_its_loop_before_all_are_connected():
    fresh = Rank(9)
    host = FakeHost(2, Elastic(), spare=[fresh])
    away = host.ranks[1]
    run = host.run()
    await until(lambda: host.agent.membership.world)
    away.opened.clear()
    host.agent.admit_new_ranks()
    await until(lambda: fresh in host.agent.membership.joining)
    fresh.say()
    assert not await host.agent.membership.wait_until(lambda: host.ranks[0].asked, 0.3)
    away.opened.set()
    await until(lambda: host.notices)
    assert host.worlds == [["c-w0", "c-w1", "c-w9"]]
    host.finish()
    assert len(await run) == 3


async def test_a_rank_without_the_message_to_leave_its_loop_is_gathered():
    host = FakeHost(2, Elastic(), leave=0.1)
    members = host.agent.membership
    for rank in host.ranks:
        members.add(rank, await host.launch(rank), in_world=True)
        rank.say(formed=True)
    host.ranks[0].say()
    run = asyncio.create_task(host.agent.lead())
    await until(lambda: host.notices)
    assert host.worlds == [["c-w0", "c-w1"]]
    assert host.notices == ["rank 1 did not leave the loop within 0.1 s: continuing with 2 ranks from step 70"]
    host.finish()
    assert len(await run) == 2


async def test_a_hung_rank_is_reported_and_then_killed():
    host = FakeHost(2, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[1].answers.clear()
    host.ranks[1].deaf = True
    await until(lambda: len(host.notices) == 2)
    assert host.worlds == [["c-w0"]]
    assert host.notices[0].startswith(
        "rank 1 (worker c-w1) has not answered for 0.15 s; after 0.15 s more it is treated"
    )
    assert "rank 1 (worker c-w1) was lost: stopped, because it did not answer" in host.notices[1]
    host.finish()
    assert len(await run) == 1


async def test_the_user_sets_the_hung_timeout():
    host = FakeHost(1, Elastic())
    agent = ElasticAgent(host, host.group, Elastic(hung=0.1))
    host.agent = agent
    [rank] = host.ranks
    rank.answers.clear()
    run = host.run()
    await until(lambda: host.notices)
    assert "has not answered for 0.05 s" in host.warnings[0]
    await until(lambda: not rank.alive)
    run.cancel()
    await asyncio.wait([run])


async def test_an_error_of_the_users_code_ends_the_run_on_all_ranks():
    host = FakeHost(2, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[1].end("error", ename="ValueError", evalue="boom")
    replies = await run
    assert {(reply.rank, reply.ename) for reply in replies} == {(0, "KeyboardInterrupt"), (1, "ValueError")}
    assert host.worlds == []


async def test_a_rank_lost_after_the_end_of_another_loses_nothing():
    host = FakeHost(2, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].end("ok")
    host.ranks[1].mark_dead("killed")
    assert [reply.worker for reply in await run] == ["c-w0"]
