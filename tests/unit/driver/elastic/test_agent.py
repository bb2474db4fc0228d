"""An elastic run as its supervisor sees it, over ranks that answer by the book or do not."""

import asyncio

from farandole.driver.elastic.agent import ElasticAgent
from farandole.driver.options import Elastic

from tests.supervised import Rank, Workers, until


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
    assert [rank.asked for rank in survivors] == [[("pause_at_next_commit", ""), ("leave_at_commit", "9")]] * 2
    assert staff.worlds == [["c-w0", "c-w1", "c-w9"]]
    assert staff.told == [
        "a lost rank could not be replaced yet, it is tried again: no worker can be had",
        "rank 2 joined: going on with 3 ranks from step 90",
    ]
    staff.finish()
    assert len(await run) == 3


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
    supervisor = ElasticAgent(staff, staff.group, Elastic(hung=0.1))
    staff.supervisor = supervisor
    [rank] = staff.ranks
    rank.answers.clear()
    run = staff.run()
    await until(lambda: staff.told)
    assert "has not answered for 0.05 s" in staff.told[0]
    await until(lambda: not rank.alive)
    run.cancel()
    await asyncio.wait([run])


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
