"""Tests for how waiting ranks form the next world, and what happens if they cannot form it."""

import asyncio

import pytest
from farandole.driver.options import Elastic
from farandole.exceptions import RankDiedError
from farandole.protocol import RESTARTED

from tests.elastic_host import FakeHost, Rank, until


async def test_no_more_ranks_join_than_the_maximum():
    host = FakeHost(2, Elastic(max_ranks=2), spare=[Rank(9)])
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.admit_new_ranks()
    await until(lambda: not host.spare)
    host.finish()
    assert len(await run) == 2
    assert host.worlds == []


async def test_with_too_few_ranks_the_run_waits_and_gives_up():
    host = FakeHost(2, Elastic(min_ranks=2))
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].mark_dead("killed")
    with pytest.raises(
        RankDiedError, match=r"rank 0 \(worker c-w0\) was lost: killed; 1 rank is left, fewer than the 2 "
    ):
        await run
    assert host.worlds == []


@pytest.mark.parametrize(("failure", "worlds"), [({"stuck": 1, "form": 0.1}, 2), ({"refuses": 6}, 1)])
async def test_failed_attempts_to_form_a_world_kill_no_rank_and_do_not_fail_the_run(failure, worlds):
    host = FakeHost(3, Elastic(), replacement=60, **failure)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[2].mark_dead("killed")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w0", "c-w1"]] * worlds
    assert host.notices == ["rank 2 (worker c-w2) was lost: killed: continuing with 2 ranks from step 70"]
    assert all(rank.alive for rank in host.ranks)
    host.finish()
    assert len(await run) == 2


async def test_a_rank_that_alone_received_the_new_world_is_gathered():
    host = FakeHost(3, Elastic(), refuses=1)
    informed = host.ranks[0]
    run = host.run()
    await until(lambda: host.agent.membership.world)
    informed.waits = False
    host.ranks[2].mark_dead("killed")
    await until(lambda: host.notices)
    assert host.worlds == [["c-w0", "c-w1"]]
    asked = [[function for function, _ in rank.asked] for rank in host.ranks[:2]]
    assert asked[0].count("mark_world_broken") == 2
    assert "waits" in asked[1]
    host.finish()
    assert len(await run) == 2


async def test_ranks_are_paused_again_if_one_answers_late():
    host = FakeHost(2, Elastic(), spare=[Rank(9)], pause=0.5)
    host.ranks[1].slow = 1.0
    first, fresh = host.ranks[0], host.spare[0]
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.admit_new_ranks()
    await until(lambda: fresh in host.agent.membership.joining)
    fresh.say()
    await until(lambda: host.notices)
    assert first.asked[:2] == [("pause_at_next_commit", "")] * 2
    assert first.asked[-1] == ("leave_at_commit", "8")
    assert host.worlds == [["c-w0", "c-w1", "c-w9"]]
    host.finish()
    assert len(await run) == 3


async def lose_all(host):
    """Lose two ranks, the second one because it shares a model with the first. Return the two that replace them."""
    first, second = host.ranks
    new = list(host.spare)
    await until(lambda: host.agent.membership.world)
    first.mark_dead("killed")
    second.mark_dead(RESTARTED)
    await until(lambda: len(host.agent.membership.joining) == 2)
    return new


async def test_ranks_that_share_a_model_wait_for_each_other():
    host = FakeHost(2, Elastic(), spare=[Rank(2), Rank(3)], replacement=60)
    run = host.run()
    first, second = await lose_all(host)
    first.say(together=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await until(lambda: host.worlds)
    second.say(together=True)
    await until(lambda: host.notices)
    assert host.worlds == [["c-w2", "c-w3"]]
    cause = "rank 0 (worker c-w0) was lost: killed"
    assert host.notices == [f"{cause}; ranks 0-1 joined: continuing with 2 ranks from step 70"]
    host.finish()
    assert len(await run) == 2


async def test_ranks_that_share_a_model_begin_again_without_those_that_leave():
    host = FakeHost(3, Elastic(), shares=True, spare=[Rank(3, shares=True), Rank(4, shares=True)], replacement=60)
    leaving, new = host.ranks[2], list(host.spare)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.remove([leaving])
    await until(lambda: len(host.agent.membership.joining) == 2)
    for rank in new:
        rank.say(together=True)
    await until(lambda: host.notices)
    assert host.released == ["c-w2"]
    assert host.worlds == [["c-w3", "c-w4"]]
    assert host.notices == ["ranks 0-1 joined; 1 rank left with worker c-w2: continuing with 2 ranks from step 70"]
    assert host.warnings == []
    host.finish()
    assert len(await run) == 2


async def test_ranks_that_share_a_model_begin_again_only_once_for_one_that_joins():
    host = FakeHost(2, Elastic(), shares=True, spare=[Rank(9, shares=True)], replacement=60)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.agent.admit_new_ranks()
    await until(lambda: host.agent.membership.joining)
    host.spare = [Rank(3, shares=True), Rank(4, shares=True)]
    first, second = host.spare
    host.agent.membership.joining[0].say(together=True)
    await until(lambda: len(host.agent.membership.joining) == 3)
    first.say(together=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await until(lambda: host.worlds)
    second.say(together=True)
    await until(lambda: host.notices)
    assert host.worlds == [["c-w9", "c-w3", "c-w4"]]
    assert host.notices == ["ranks 0-2 joined: continuing with 3 ranks from step 70"]
    host.finish()
    assert len(await run) == 3


async def test_ranks_that_share_a_model_may_begin_again_often_for_others_that_join():
    host = FakeHost(1, Elastic(), shares=True)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    for number in range(1, 5):
        news, host.spare = len(host.notices), [Rank(number, shares=True)]
        host.agent.admit_new_ranks()
        await until(lambda: host.agent.membership.joining)
        host.agent.membership.joining[0].say(together=True)
        await until(lambda news=news: len(host.notices) > news)
    assert host.notices[-1] == "rank 0 joined: continuing with 1 rank from step 70"
    assert host.warnings == []
    host.finish()
    assert len(await run) == 1


async def test_ranks_that_share_a_model_may_know_only_later_from_where_they_continue():
    host = FakeHost(1, Elastic(), shares=True)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    for number in range(1, 6):
        news, host.spare = len(host.notices), [Rank(number, shares=True)]
        host.agent.membership.world[0].mark_dead("killed")
        await until(lambda: host.agent.membership.joining)
        [new] = host.agent.membership.joining
        new.commits = 0
        new.say(together=True)
        await until(lambda news=news: len(host.notices) > news)
        new.say(formed=True, commits=5 * number)
    host.finish()
    assert len(await run) == 1


async def test_fewer_ranks_that_share_a_model_continue_after_a_while():
    host = FakeHost(2, Elastic(), spare=[Rank(2), Rank(3)])
    run = host.run()
    first, _ = await lose_all(host)
    first.say(together=True)
    await until(lambda: host.worlds)
    assert host.worlds == [["c-w2"]]
    host.finish()
    assert len(await run) == 1
