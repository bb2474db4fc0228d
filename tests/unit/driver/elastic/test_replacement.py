"""New ranks of an elastic run join, are tried again and told of; their workers are stopped when they leave."""

import asyncio

from farandole.driver.options import Elastic
from farandole.exceptions import WorkerStartError

from tests.supervised import Rank, Workers, until


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
