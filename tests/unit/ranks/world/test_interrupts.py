"""Interrupts wait until a rank has formed or left its world."""

import os
import signal
import threading

import pytest
from farandole.ranks.world.interrupts import deferred_interrupts


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def interrupted(then):
    with deferred_interrupts():
        interrupt()
        then()


def fail():
    raise ValueError("peer")


def test_an_interrupt_is_raised_after_the_block():
    done = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupted(lambda: done.append("block"))
    assert done == ["block"]
    assert signal.getsignal(signal.SIGINT) is before


def test_the_exception_of_the_block_is_not_replaced():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="peer"):
        interrupted(fail)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_ignored_interrupt_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupted(lambda: None)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_leaves_the_handler_alone():
    found = []

    def leave():
        with deferred_interrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]
