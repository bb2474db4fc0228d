"""Tests for the bridge between a notebook cell and the event loop: results, errors and interrupts."""

import _thread
import asyncio
import signal
import threading

import pytest
from farandole.driver.loop import LoopThread


@pytest.fixture
def loop():
    thread = LoopThread()
    yield thread
    thread.close()


async def value(result):
    await asyncio.sleep(0)
    return result


async def failure():
    raise ValueError("boom")


def test_a_result_and_an_error_are_returned(loop):
    assert loop.call(value(3)) == 3
    with pytest.raises(ValueError, match="boom"):
        loop.call(failure())


def test_the_pump_runs_in_this_thread_during_the_work_and_once_after_it(loop):
    pumped = []
    gate = asyncio.Event()

    def pump():
        pumped.append(1)
        loop.loop.call_soon_threadsafe(gate.set)

    assert loop.call(gate.wait(), pump=pump) is True
    assert len(pumped) >= 2


def test_an_interrupt_cancels_the_work_and_waits_until_it_has_cleaned_up(loop):
    steps = []

    async def work():
        try:
            _thread.interrupt_main()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            steps.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        loop.call(work(), pump=lambda: None)
    assert steps == ["cleaned up"]


def test_an_interrupt_first_asks_the_work_to_end(loop):
    asked = asyncio.Event()
    steps = []

    async def work():
        _thread.interrupt_main()
        await asked.wait()
        steps.append("ended by itself")

    async def ask():
        asked.set()
        await asyncio.sleep(0.05)

    with pytest.raises(KeyboardInterrupt):
        loop.call(work(), on_interrupt=ask, pump=lambda: None)
    assert steps == ["ended by itself"]


def test_an_interrupt_leaves_the_work_if_it_is_told_to(loop):
    begun, steps = [], []
    goes_on = asyncio.Event()

    async def work():
        begun.append(asyncio.current_task())
        _thread.interrupt_main()
        await goes_on.wait()
        steps.append("ended by itself")

    async def leave():
        return True

    with pytest.raises(KeyboardInterrupt):
        loop.call(work(), on_interrupt=leave, pump=lambda: None)
    assert steps == []

    async def end():
        goes_on.set()
        await asyncio.wait(begun)

    loop.call(end())
    assert steps == ["ended by itself"]


def test_a_second_interrupt_waits_until_it_is_known_whether_the_work_is_left(loop):
    steps = []

    async def work():
        _thread.interrupt_main()
        await asyncio.Event().wait()

    async def leave():
        await asyncio.sleep(0.1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.sleep(0.3)
        steps.append("left")
        return False

    with pytest.raises(KeyboardInterrupt):
        loop.call(work(), on_interrupt=leave, pump=lambda: None)
    assert steps == ["left"]


def test_an_error_of_the_pump_ends_the_work_too(loop):
    ended = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    def pump():
        raise ValueError("the display failed")

    with pytest.raises(ValueError, match="display failed"):
        loop.call(work(), pump=pump)
    assert ended == [True]
