"""Tests that KubeSpawner's informers list the pods again after an outage of the API server, which is faked here."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientConnectionError
from kubespawner import reflector as reflectors
from kubespawner import spawner as kubespawner
from kubespawner.spawner import PodReflector

from spawner_config.kubernetes.informers import WatchingSpawner, keep_watching


class Api:
    """A fake API server that lists pods with these names, but fails if ``up`` is false. Watches deliver no events."""

    def __init__(self, *names: str) -> None:
        self.up = True
        self.names = names

    async def list_namespaced_pod(self, *, watch: bool = False, **_: Any) -> Any:
        if not self.up:
            raise ClientConnectionError("nobody there")
        if watch:
            await asyncio.Event().wait()
        items = [{"metadata": {"namespace": "farandole", "name": name}} for name in self.names]
        body = json.dumps({"items": items, "metadata": {"resourceVersion": "1"}}).encode()

        async def read() -> bytes:
            return body

        return SimpleNamespace(ok=True, read=read)


async def at_once(_seconds: float) -> None:
    pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    fake = Api("one")
    monkeypatch.setattr(kubespawner, "load_config", lambda **_: None)
    monkeypatch.setattr(kubespawner, "shared_client", lambda *_: fake)
    monkeypatch.setattr(reflectors, "shared_client", lambda *_: fake)
    # Skip the delays between retries, because KubeSpawner stops retrying only after about a minute.
    monkeypatch.setattr(reflectors, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": at_once}))
    monkeypatch.setattr(WatchingSpawner, "reflectors", {})
    return fake


async def until(fact: Any) -> None:
    async with asyncio.timeout(20):
        while not fact():
            await asyncio.sleep(0.01)


async def test_a_failed_watch_is_restarted_and_keeps_its_objects_meanwhile(api: Api) -> None:
    reflector = PodReflector(namespace="farandole")
    api.up = False
    reflector.resources = {"farandole/zero": {}}
    reflector.watch_task = asyncio.create_task(reflector._watch_and_update())
    keep_watching(reflector)
    await until(reflector.watch_task.done)
    assert list(reflector.pods) == ["farandole/zero"]
    api.up = True
    keep_watching(reflector)
    begun = reflector.watch_task
    keep_watching(reflector)
    assert reflector.watch_task is begun
    await until(lambda: list(reflector.pods) == ["farandole/one"])
    begun.cancel()
    await asyncio.wait([begun])


async def test_a_failed_first_list_is_retried(api: Api) -> None:
    owner = SimpleNamespace(name="ada", id=1, url="/user/ada/", spawners={}, groups=[])
    row = SimpleNamespace(name="", server=None, state=None)
    spawner = WatchingSpawner(user=owner, orm_spawner=row, namespace="farandole")
    api.up = False
    for _ in range(2):
        with pytest.raises(ClientConnectionError):
            await spawner._start_watching_pods()
    api.up = True
    found = await spawner._start_watching_pods()
    assert list(found.pods) == ["farandole/one"]
    found.watch_task.cancel()
    await asyncio.wait([found.watch_task])
