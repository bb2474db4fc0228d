"""Tests that output which waits to be shown keeps its order and only the latest state of each display."""

from farandole.driver.cells.relay import Backlog, OutputRelay
from farandole.driver.output import Block


def test_only_the_latest_state_of_a_display_is_kept_at_its_first_place():
    backlog = Backlog()
    states = [Block(ranks=(0,), bundle={"text/plain": str(step)}, display="bar") for step in range(1000)]
    line = Block(ranks=(0,), stream="stdout", text="line\n")
    for block in [states[0], line, *states[1:], line]:
        backlog.add(block)
    assert backlog.take() == [states[-1], line, line]
    assert backlog.take() == []


def test_a_sentence_of_the_driver_is_shown_once_after_the_output_of_the_ranks():
    shown = []
    relay = OutputRelay([0], shown.append)
    relay.put(0, "stream", {"name": "stdout", "text": "line\n"})
    relay.add_note("rank 0 waits")
    relay.pump(flush=True)
    relay.pump(flush=True)
    assert shown == [
        Block(ranks=(0,), stream="stdout", text="line\n"),
        Block(ranks=(), stream="stderr", text="rank 0 waits\n"),
    ]
