"""Tests for the hub's requests about publications, with a complete hub. Only its proxy and the copying are fakes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from spawner_config.publishing.handlers import handlers
from spawner_config.publishing.publications import Ended, Order, Publications, VersionStore
from spawner_config.roles import NOTEBOOK_SCOPES
from spawner_config.shares import Shares
from tests.unit.spawner_config.operators.test_handlers import Hub, hub, proxy

if TYPE_CHECKING:
    from farandole.datasets.versions.names import DataVersion

__all__ = ["hub", "proxy"]
PATH = "/hub/api/farandole/users/ada/data-sets/digits"
ORDER = {"folder": "/home/user/data/digits", "bytes": 2}


class Store(VersionStore):
    """Volumes in which nothing is copied."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.may_end = asyncio.Event()

    async def copy(self, _version: DataVersion, order: Order) -> Ended:
        self.orders.append(order)
        await self.may_end.wait()
        return Ended(status=0, outcome=json.dumps({"files": 1, "bytes": 2, "digest": "sha256:9c"}))


@pytest.fixture
def store(hub: Hub) -> Store:
    """The volumes of a hub on which ada publishes from a running notebook server."""
    hub.start("")
    store = Store()
    rules = handlers(Publications(store, frozenset({"ada"}), Shares(), hub="farandole"))
    application = hub.application
    application.tornado_application.add_handlers(".*", application.add_url_prefix("/hub", rules))
    return store


async def asked(hub: Hub, method: str, scopes: list[str] | None = None, path: str = PATH, **options: Any) -> tuple:
    return await hub.ask(method, path, hub.token(hub.ada, scopes or NOTEBOOK_SCOPES), **options)


async def test_a_notebook_of_a_publisher_publishes(hub: Hub, store: Store) -> None:
    assert (await asked(hub, "GET"))[0] == 404
    assert await asked(hub, "POST", json=ORDER) == (202, {"state": "copying"})
    status, answer = await asked(hub, "POST", json=ORDER)
    assert (status, "is being published" in answer["message"]) == (409, True)
    store.may_end.set()
    async with asyncio.timeout(10):
        while (found := await asked(hub, "GET")) == (200, {"state": "copying"}):
            await asyncio.sleep(0)
    result = {"files": 1, "bytes": 2, "digest": "sha256:9c"}
    assert found == (200, {"state": "published", "version": "digits@1", **result})
    [order] = store.orders
    assert (order.user, order.name, order.folder, order.bytes) == ("ada", "digits", "data/digits", 2)
    assert order.spawner is hub.ada.spawners[""]


async def test_only_programs_of_publishers_may_publish(hub: Hub, store: Store) -> None:
    worker = ["users:activity!user", "access:servers!server=ada/main-w0"]
    for scopes in (worker, ["access:servers!user"], ["read:users!user"]):
        for method in ("POST", "GET"):
            assert (await asked(hub, method, scopes, json=ORDER))[0] == 403, (method, scopes)
    # An administrator has the scopes, but is not the user, and is not named.
    olga = hub.token(hub.olga)
    assert (await hub.ask("POST", PATH, olga, json=ORDER))[0] == 403
    status, answer = await hub.ask("POST", PATH.replace("ada", "olga"), olga, json=ORDER)
    assert (status, "FARANDOLE_DATA_PUBLISHERS" in answer["message"]) == (403, True)
    assert (await hub.ask("POST", PATH, json=ORDER))[0] == 403
    assert store.orders == []


async def test_the_home_of_a_server_that_does_not_run_is_not_read(hub: Hub, store: Store) -> None:
    """The start of a server checks whose home it mounts."""
    hub.start("main-w0")
    hub.spawner("").server = None
    status, answer = await asked(hub, "POST", json=ORDER)
    assert (status, answer["message"]) == (409, "your notebook server does not run; start it first")
    assert store.orders == []


FOLDERS = ("", ".", "/etc", "data", "/home/user", "/home/user2/a", 3)
NAMES = ("..", "a/../../b", "a\nb", "a" * 5000)
INVALID: tuple[Any, ...] = (
    [],
    {},
    {"folder": "/home/user/data"},
    *({"folder": "/home/user/data", "bytes": size} for size in (-1, True, 2**63, "2")),
    *({"folder": folder, "bytes": 2} for folder in FOLDERS),
    *({"folder": f"/home/user/{name}", "bytes": 2} for name in NAMES),
)


async def test_an_invalid_order_is_refused(hub: Hub, store: Store) -> None:
    for body in INVALID:
        status, answer = await asked(hub, "POST", json=body)
        assert (status, bool(answer["message"])) == (400, True), body
    for name in ("Digits", "digits@2", "a" * 41):
        status, answer = await asked(hub, "POST", path=PATH.replace("digits", name), json=ORDER)
        assert (status, "cannot be the name of a data set" in answer["message"]) == (400, True), name
    assert store.orders == []
