"""Tests for when an elastic run ends after repeated failures, and for the notices about such failures."""

import asyncio

import pytest
from farandole.driver.options import Elastic
from farandole.exceptions import RankError

from tests.elastic_host import FakeHost, Rank, until

TORN = (
    "RuntimeError: [/a/long/way/to/its/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4066. "
    "This is typically caused by a remote worker crashing. Check the logs of the remote worker."
)
"""An error from Gloo. Its message begins with the file and the line number in Gloo's source code."""


async def test_a_notice_shows_the_error_of_a_library_without_its_source_line():
    host = FakeHost(2, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].say(failed=True, why=TORN)
    await until(lambda: host.notices)
    assert "(RuntimeError: Connection closed by peer [10.0.0.2]:4066. " in host.notices[0]
    assert "pair.cc" not in host.notices[0]
    run.cancel()
    await asyncio.wait([run])


async def test_failures_without_a_commit_in_between_end_the_run():
    host = FakeHost(2, Elastic())
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].say(failed=True, why="torn")
    await until(lambda: len(host.notices) == 1)
    host.ranks[0].say(failed=True, why="torn")
    await until(lambda: len(host.notices) == 2)
    host.ranks[0].say(failed=True, why="torn")
    with pytest.raises(RankError, match=r"failed 3 times in a row without a commit .* lost their connections \(torn\)"):
        await run
    assert len(host.worlds) == 2


async def lose_all(host, times, commits_of):
    """Kill the only rank ``times`` times, and let a new rank replace it each time.

    ``commits_of`` gets the index of the new rank, from 0, and returns the number of commits in its memory checkpoint.
    """
    for number in range(times):
        fresh = Rank(10 + number)
        fresh.commits = commits_of(number)
        host.spare = [fresh]
        host.agent.membership.world[0].mark_dead("killed")
        await until(lambda fresh=fresh: fresh in host.agent.membership.joining)
        fresh.say()
        await until(lambda number=number: len(host.notices) == number + 1)


async def test_all_ranks_may_be_lost_repeatedly_with_commits_in_between():
    host = FakeHost(1, Elastic(), replacement=20)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    await lose_all(host, 5, lambda number: 10 * number)
    assert len(host.worlds) == 5
    host.finish()
    assert len(await run) == 1


async def test_commits_are_counted_from_an_older_memory_checkpoint():
    host = FakeHost(1, Elastic(), replacement=20)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    await lose_all(host, 5, [90, 40, 50, 30, 60].__getitem__)
    host.finish()
    assert len(await run) == 1


async def test_repeated_losses_of_all_ranks_without_a_commit_end_the_run():
    host = FakeHost(1, Elastic(), replacement=20)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    await lose_all(host, 2, lambda _: 7)
    fresh = Rank(20)
    host.spare = [fresh]
    host.agent.membership.world[0].mark_dead("killed")
    await until(lambda: fresh in host.agent.membership.joining)
    fresh.say()
    with pytest.raises(RankError, match=r"failed 3 times in a row without a commit .* was lost: killed"):
        await run


async def test_a_world_that_can_never_be_formed_ends_the_run():
    host = FakeHost(2, Elastic(), breaks=1000)
    run = host.run()
    await until(lambda: host.agent.membership.world)
    host.ranks[0].say(failed=True, why="torn")
    with pytest.raises(RankError, match=r"could not form a world in \d+ attempts, .* lost their connections \(torn\)"):
        await run
    assert len(host.worlds) >= 3
    assert host.notices == []
