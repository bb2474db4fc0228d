"""Who waits forms the next world, or is brought back where that fails."""

import pytest
from farandole.driver.options import Elastic
from farandole.exceptions import RankDiedError

from tests.supervised import Rank, Workers, until


async def test_no_more_ranks_join_than_there_may_be():
    staff = Workers(2, Elastic(max_ranks=2), spare=[Rank(9)])
    run = staff.run()
    await until(lambda: staff.supervisor.members.inside)
    staff.supervisor.take_in()
    await until(lambda: not staff.spare)
    staff.finish()
    assert len(await run) == 2
    assert staff.worlds == []


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
    assert asked[0].count("mark_world_broken") == 2
    assert "waits" in asked[1]
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
    assert first.asked[:2] == [("pause_at_next_commit", "")] * 2
    assert first.asked[-1] == ("leave_at_commit", "8")
    assert staff.worlds == [["c-w0", "c-w1", "c-w9"]]
    staff.finish()
    assert len(await run) == 3
