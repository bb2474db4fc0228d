"""Tests that progress bars rewrite their lines as in a terminal."""

import pytest
from farandole.runs.model import LogTail
from farandole.runs.terminal import MOST_ROWS, SETTLE_SECONDS, TerminalLines

UP = "\x1b[A"


def test_plain_lines_are_complete_at_once():
    lines = TerminalLines()
    assert lines.add("one\ntw") == ["one"]
    assert lines.add("o\n\nthree\n") == ["two", "", "three"]
    assert (lines.open, lines.live, lines.flush()) == ([], [], [])


@pytest.mark.parametrize("text", ["one\r\ntwo\r\n", "\x1b[31mone\x1b[0m\ntwo\n"])
def test_line_ends_of_windows_and_colours_are_not_progress(text):
    lines = TerminalLines()
    assert [line.strip("\x1b[031m") for line in lines.add(text)] == ["one", "two"]
    assert lines.live == []


def test_a_carriage_return_replaces_the_line_with_the_next_text():
    lines = TerminalLines()
    for frame in ("\r 10 %", "\r 50 %", "\r100 %  "):
        assert lines.add(frame) == []
    assert lines.live == ["100 %"]
    assert lines.add("\n", 1.0) == []
    assert lines.settle(1.0) == []
    assert lines.settle(1.0 + SETTLE_SECONDS) == ["100 %"]
    assert (lines.live, lines.flush()) == ([], [])


def test_a_line_after_a_bar_completes_the_bar():
    lines = TerminalLines()
    lines.add("\r100 %\n")
    assert lines.add("saved\n") == ["100 %", "saved"]


def test_a_bar_that_clears_itself_leaves_no_line():
    lines = TerminalLines()
    lines.add("\r100 %")
    assert lines.add("\r     \rdone\n", 0.0) == []
    assert lines.settle(1.0) == ["done"]
    lines.add("\r100 %\r     \r")
    assert (lines.open, lines.live, lines.flush()) == ([], [], [])


def nested(epoch, batch):
    """Return what tqdm writes for an update of an inner bar and of an outer bar, in its pieces."""
    return ["\n", f"\rbatch {batch}", UP, f"\repoch {epoch}"]


def test_nested_bars_leave_one_line_each():
    lines = TerminalLines()
    complete = lines.add("\repoch 0")
    for epoch in range(3):
        for batch in range(100):
            for piece in nested(epoch, batch):
                complete += lines.add(piece, epoch + batch / 100) + lines.settle(epoch + batch / 100)
    assert complete == []
    assert lines.live == ["epoch 2", "batch 99"]
    assert lines.flush() == ["epoch 2", "batch 99"]


def test_an_inner_bar_that_ends_becomes_a_line_above_the_outer_bar():
    lines = TerminalLines()
    for piece in [*nested(0, 1), "\rbatch 100\n", "\repoch 1"]:
        lines.add(piece)
    assert lines.settle(SETTLE_SECONDS) == ["batch 100"]
    assert lines.live == ["epoch 1"]


def test_a_third_bar_below_a_bar_that_has_not_begun():
    lines = TerminalLines()
    assert lines.add(f"\router\n\n\rinnermost{UP}{UP}", 0.0) == []
    assert lines.add("\router again\x1b[2A") == []
    assert lines.live == ["outer again", "innermost"]


def test_many_finished_bars_do_not_accumulate():
    lines = TerminalLines()
    complete = [line for n in range(100) for line in lines.add(f"\rbar {n}\n")]
    assert complete == [f"bar {n}" for n in range(101 - MOST_ROWS)]


def test_a_line_without_end_is_cut_and_counted():
    lines = TerminalLines(most=10)
    for _ in range(5):
        lines.add("abcd")
    assert (lines.open, lines.dropped) == (["abcdabcdab"], 10)


def test_the_log_tail_shows_nested_bars_once_and_keeps_the_lines_before_many_frames():
    tail = LogTail()
    tail.add("first\n" + "".join(piece for batch in range(5000) for piece in nested(0, batch)))
    assert tail.lines() == ["first", "epoch 0", "batch 4999"]
