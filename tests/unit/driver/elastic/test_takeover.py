"""Tests for an elastic run that another driver takes over."""

from farandole.driver.elastic.takeover import missing


def test_ranks_that_do_not_answer_are_missing():
    assert missing([{"rank": 2, "size": 4}, {"rank": 0, "size": 4}]) == [1, 3]
    assert missing([]) == [0]
