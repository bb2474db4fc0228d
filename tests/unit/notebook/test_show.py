"""Tests that the output of ranks is printed with labels, and that displays are updated in place."""

import pytest
from farandole.driver.output import Block
from farandole.notebook import show
from farandole.notebook.show import RankPrinter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@pytest.fixture(autouse=True)
def shell():
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(show, "in_kernel", lambda: True)


def bar(text, *, final=False):
    return Block(ranks=(0,), bundle={"text/plain": text}, display="bar", final=final)


def printed(blocks):
    printer = RankPrinter()
    with capture_output() as captured:
        for block in blocks:
            printer(block)
    return captured


def test_a_display_is_shown_once_and_then_updated(kernel):
    captured = printed([bar("1"), bar("2"), bar("3", final=True)])
    assert [line for line in captured.stdout.splitlines() if line] == ["── rank 0 " + "─" * 20]
    shown = [(output.data["text/plain"], output.transient, output.update) for output in captured.outputs]
    assert shown == [(text, {"display_id": "bar"}, text != "1") for text in "123"]


def test_text_after_the_progress_bars_is_labelled_again(kernel):
    text = Block(ranks=(1,), stream="stdout", text="hi\n")
    captured = printed([text, Block(ranks=(), bundle={"text/plain": "50 %"}, display="live"), text])
    assert captured.stdout.count("── rank 1 ") == 2


def test_a_terminal_shows_the_states_of_a_display_rarely_and_the_last_one_always(monkeypatch):
    states = [bar(str(step)) for step in range(100)]
    captured = printed([*states, bar("100", final=True), bar("", final=True)])
    assert [output.data["text/plain"] for output in captured.outputs] == ["0", "100"]
    monkeypatch.setattr(show, "TERMINAL_SECONDS", 0.0)
    assert len(printed(states).outputs) == 100
