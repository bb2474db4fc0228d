"""Tests that output which waits to be shown keeps its order and only the latest state of each display."""

from farandole.driver.cells.relay import Backlog
from farandole.driver.output import Block


def test_only_the_latest_state_of_a_display_is_kept_at_its_first_place():
    backlog = Backlog()
    states = [Block(ranks=(0,), bundle={"text/plain": str(step)}, display="bar") for step in range(1000)]
    line = Block(ranks=(0,), stream="stdout", text="line\n")
    for block in [states[0], line, *states[1:], line]:
        backlog.add(block)
    assert backlog.take() == [states[-1], line, line]
    assert backlog.take() == []
