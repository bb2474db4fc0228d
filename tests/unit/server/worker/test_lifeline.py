from __future__ import annotations

import asyncio
import logging
import os

from farandole.server.worker.lifeline import LIFELINE_VARIABLE, stop_with_parent


class Server:
    """A fake of Jupyter's ServerApp with the methods that a lifeline uses."""

    log = logging.getLogger("server")

    def __init__(self):
        self.stopped = asyncio.Event()

    def stop(self, *, from_signal):
        assert from_signal
        self.stopped.set()


async def test_the_server_stops_when_the_other_end_is_closed(monkeypatch):
    ours, theirs = os.pipe()
    monkeypatch.setenv(LIFELINE_VARIABLE, str(ours))
    server = Server()
    stop_with_parent(server)
    await asyncio.sleep(0)
    assert not server.stopped.is_set()
    os.close(theirs)
    await asyncio.wait_for(server.stopped.wait(), 5)
    os.close(ours)


async def test_the_descriptor_is_not_inherited(monkeypatch):
    ours, theirs = os.pipe()
    monkeypatch.setenv(LIFELINE_VARIABLE, str(ours))
    stop_with_parent(server := Server())
    assert LIFELINE_VARIABLE not in os.environ
    os.close(theirs)
    await asyncio.wait_for(server.stopped.wait(), 5)
    os.close(ours)


async def test_a_server_without_a_lifeline_continues(monkeypatch):
    monkeypatch.delenv(LIFELINE_VARIABLE, raising=False)
    stop_with_parent(server := Server())
    await asyncio.sleep(0)
    assert not server.stopped.is_set()
