"""A kernel replies to every cell, no matter when an interrupt arrives."""

from types import SimpleNamespace

import pytest
from farandole.ranks.kernel import interrupts
from farandole.ranks.kernel.interrupts import REQUEST, ReplyOnInterrupt


class Session:
    def __init__(self):
        self.sent = []

    def send(self, _stream, kind, content, parent, *, ident):
        self.sent.append((kind, content["status"], content["ename"], parent, ident))


@pytest.fixture
def kernel(monkeypatch):
    async def handle(_stream, _ident, parent):
        if error := parent.get("error"):
            raise error

    kernel = SimpleNamespace(session=Session(), shell_handlers={REQUEST: handle})
    monkeypatch.setattr(interrupts, "get_ipython", lambda: SimpleNamespace(kernel=kernel))
    return kernel


async def test_a_cell_whose_reply_was_interrupted_is_answered(kernel):
    interrupts.install()
    parent = {"error": KeyboardInterrupt()}
    await kernel.shell_handlers[REQUEST]("stream", ["driver"], parent)
    assert kernel.session.sent == [("execute_reply", "error", "KeyboardInterrupt", parent, ["driver"])]


async def test_a_cell_that_is_not_interrupted_is_left_to_the_kernel(kernel):
    interrupts.install()
    await kernel.shell_handlers[REQUEST]("stream", ["driver"], {})
    with pytest.raises(ValueError):
        await kernel.shell_handlers[REQUEST]("stream", ["driver"], {"error": ValueError()})
    assert kernel.session.sent == []


def test_it_is_installed_once_and_only_in_a_kernel(kernel, monkeypatch):
    interrupts.install()
    first = kernel.shell_handlers[REQUEST]
    interrupts.install()
    assert isinstance(first, ReplyOnInterrupt)
    assert kernel.shell_handlers[REQUEST] is first
    monkeypatch.setattr(interrupts, "get_ipython", lambda: None)
    interrupts.install()
