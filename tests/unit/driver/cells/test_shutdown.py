"""Tests that the interrupt before a kernel's shutdown is recognized, with ipykernel's own handling of the request."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from farandole.driver.cells import shutdown
from farandole.driver.cells.shutdown import shutdown_follows
from ipykernel.ipkernel import IPythonKernel
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell(monkeypatch):
    """The shell of a kernel, which the kernel's methods use."""
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.kernel = SimpleNamespace(shell=shell)
    yield shell
    InteractiveShell.clear_instance()


def request_shutdown(shell):
    assert IPythonKernel.do_shutdown(shell.kernel, restart=True) == {"status": "ok", "restart": True}


async def test_a_request_that_arrives_after_the_interrupt_is_recognized(shell):
    asyncio.get_running_loop().call_later(0.1, request_shutdown, shell)
    assert await shutdown_follows()


async def test_a_request_that_is_already_there_causes_no_delay(shell, monkeypatch):
    monkeypatch.setattr(shutdown, "LOOK_SECONDS", 60)
    request_shutdown(shell)
    assert await shutdown_follows()


async def test_the_interrupt_of_a_user_is_hardly_delayed(shell):
    begun = time.monotonic()
    assert not await shutdown_follows()
    assert time.monotonic() - begun < 2


async def test_an_interrupt_without_a_kernel_is_not_delayed(shell, monkeypatch):
    monkeypatch.setattr(shutdown, "LOOK_SECONDS", 60)
    shell.kernel = None
    assert not await shutdown_follows()
