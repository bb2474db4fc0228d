"""A kernel replies to every cell, no matter when an interrupt arrives."""

import os
import signal
import threading
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
    shell = SimpleNamespace(kernel=kernel, showtraceback=show)
    monkeypatch.setattr(interrupts, "get_ipython", lambda: shell)
    kernel.shell = shell
    return kernel


def show(text):
    os.kill(os.getpid(), signal.SIGINT)
    return text


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


def test_an_interrupt_does_not_end_the_formatting_of_a_traceback(kernel):
    interrupts.install()
    before = signal.getsignal(signal.SIGINT)
    assert kernel.shell.showtraceback("shown") == "shown"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_traceback_in_another_thread_leaves_the_handler_alone(kernel):
    call = interrupts.uninterrupted(lambda: signal.getsignal(signal.SIGINT))
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


def test_it_is_installed_once_and_only_in_a_kernel(kernel, monkeypatch):
    interrupts.install()
    first = kernel.shell_handlers[REQUEST]
    interrupts.install()
    assert isinstance(first, ReplyOnInterrupt)
    assert kernel.shell_handlers[REQUEST] is first
    monkeypatch.setattr(interrupts, "get_ipython", lambda: None)
    interrupts.install()
