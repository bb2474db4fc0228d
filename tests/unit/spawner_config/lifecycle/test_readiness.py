from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace

import pytest
from dockerspawner import DockerSpawner
from jupyterhub.spawner import SpawnException

from spawner_config.lifecycle import readiness
from spawner_config.lifecycle.readiness import ReadinessSpawner, listens


@pytest.fixture
def closed_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def spawner(monkeypatch, closed_port):
    """A spawner whose server does not listen. Tests replace `poll` to set the status of its container."""

    async def start(self):
        return "127.0.0.1", closed_port

    monkeypatch.setattr(DockerSpawner, "start", start)
    monkeypatch.setattr(readiness, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(readiness, "LISTEN_SECONDS", 0.2)
    return ReadinessSpawner()


async def test_a_server_that_listens_late_has_started():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        waiting = asyncio.create_task(listens(*listener.getsockname(), 60))
        await asyncio.sleep(0)
        assert not waiting.done()
        listener.listen()
        assert await waiting


async def test_a_start_without_a_listener_fails(closed_port):
    assert not await listens("127.0.0.1", closed_port, 0.3)


@pytest.mark.parametrize("status", ["ExitCode=137, Error='', FinishedAt=now", 0])
async def test_a_server_that_ends_is_reported_with_its_status(spawner, monkeypatch, status):
    async def poll():
        return status

    monkeypatch.setattr(spawner, "poll", poll)
    with pytest.raises(SpawnException, match=r"ended while it started \((ExitCode=137|its container is gone)"):
        await spawner.start()


async def test_a_server_that_does_not_listen_is_reported(spawner, monkeypatch):
    async def poll():
        return None

    monkeypatch.setattr(spawner, "poll", poll)
    with pytest.raises(SpawnException, match="did not listen"):
        await spawner.start()


@pytest.mark.parametrize(
    ("status", "pending", "ended"),
    [(0, False, [""]), (0, True, []), (None, False, [])],
    ids=["given up", "restarting", "running"],
)
async def test_a_start_that_was_given_up_does_not_count_as_a_server(monkeypatch, status, pending, ended):
    async def poll(self):
        return status

    async def stop(name):
        stopped.append(name)

    monkeypatch.setattr(DockerSpawner, "poll", poll)
    stopped: list[str] = []
    spawner = ReadinessSpawner(user=SimpleNamespace(stop=stop, name="ada"))
    monkeypatch.setattr(ReadinessSpawner, "server", object())
    spawner._spawn_pending = pending
    assert await spawner.poll_and_notify() == status
    assert stopped == ended
