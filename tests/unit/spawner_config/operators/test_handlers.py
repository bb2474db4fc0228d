"""Tests for the hub's requests about notices, with a complete hub. Only its proxy and its servers are fakes."""

from __future__ import annotations

import asyncio
import errno
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from jupyterhub import orm
from jupyterhub.objects import Server
from jupyterhub.roles import assign_default_roles
from jupyterhub.spawner import Spawner

from hub.process import CONFIG
from spawner_config.operators.configure import SCOPES
from spawner_config.operators.handlers import ServerHandler
from spawner_config.operators.notices import Notice, Notices
from spawner_config.origins.application import FarandoleHub
from spawner_config.roles import NOTEBOOK_SCOPES, WORKER_SCOPES
from tests.unit.driver.workers.test_source import served
from tests.unit.spawner_config.origins.test_whole_hub import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SITE = """
load_subconfig({config!r})
c.JupyterHub.spawner_class = "{spawner}"
c.ConfigurableHTTPProxy.api_url = {proxy!r}
"""
PATHS = {"": "/hub/api/users/ada/server", "main-w0": "/hub/api/users/ada/servers/main-w0"}


class EdgeSpawner(Spawner):  # type: ignore[misc]
    """A server without a process. Its start does not end, and its stop waits for `may_stop`."""

    alive = True
    may_stop: asyncio.Event

    async def start(self) -> Any:
        await asyncio.Event().wait()

    async def poll(self) -> int | None:
        return None if self.alive else 0

    async def stop(self, now: bool = False) -> None:
        await self.may_stop.wait()


class Hub:
    """A running hub with ada, and olga, who is an administrator."""

    def __init__(self, application: FarandoleHub, session: Any, state: Path) -> None:
        self.application = application
        self.notices = Notices(state)
        self._session = session
        self.ada, self.olga = self.user("ada"), self.user("olga", admin=True)

    def user(self, name: str, *, admin: bool = False) -> Any:
        record = orm.User(name=name, admin=admin)
        self.application.db.add(record)
        self.application.db.commit()
        assign_default_roles(self.application.db, entity=record)
        return self.application.users.add(record)

    def token(self, user: Any, scopes: list[str] | None = None) -> str:
        token: str = user.new_api_token(scopes=scopes)
        return token

    def service_token(self) -> str:
        """Return a token of the operators' service."""
        token: str = orm.Service.find(self.application.db, "operators").new_api_token(scopes=SCOPES)
        return token

    def spawner(self, name: str) -> EdgeSpawner:
        """Return the spawner of a server of ada that stops at once."""
        spawner: EdgeSpawner = self.ada.get_or_create_spawner(name, name)
        spawner.may_stop = asyncio.Event()
        spawner.may_stop.set()
        return spawner

    def start(self, name: str) -> EdgeSpawner:
        """Let ada have a running server, and return its spawner."""
        spawner = self.spawner(name)
        record = orm.Server(ip="127.0.0.1", port=1, base_url=f"/user/ada/{name}")
        self.application.db.add(record)
        self.application.db.commit()
        spawner.server = Server(orm_server=record)
        assert spawner.ready
        return spawner

    async def ask(
        self, method: str, path: str, token: str = "", *, host: str = "hub.localhost:8000", **options: Any
    ) -> tuple[int, Any]:
        headers = {"Host": host, "X-Forwarded-For": "10.0.0.7"}
        if token:
            headers["Authorization"] = f"token {token}"
        async with self._session.request(method, path, headers=headers, **options) as answer:
            return answer.status, await answer.json() if answer.content_type == "application/json" else None

    def told(self) -> list[tuple[str, str, tuple[str, ...]]]:
        return [(notice.by, notice.text, notice.servers) for notice in self.notices.of("ada")]


class Proxy:
    """A proxy that answers each request with `status`, once it `may_answer`."""

    url = ""
    status = 204

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def answer(self, _request: web.Request) -> web.Response:
        await self.may_answer.wait()
        return web.Response(status=self.status)


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    proxy = Proxy()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", proxy.answer)
    async with served(application) as proxy.url:
        yield proxy


@pytest.fixture
async def hub(
    request: pytest.FixtureRequest, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Hub]:
    """A hub whose users have separate hosts, unless the test's parameter is ``one``."""
    monkeypatch.setenv("FARANDOLE_STATE", str(tmp_path))
    monkeypatch.setenv("FARANDOLE_ORIGINS", getattr(request, "param", "per-user"))
    monkeypatch.delenv("FARANDOLE_DOMAIN", raising=False)
    site = tmp_path / "site_config.py"
    site.write_text(SITE.format(config=str(CONFIG), spawner=f"{__name__}.EdgeSpawner", proxy=proxy.url))
    application = FarandoleHub(log_level=30)
    async with running(application, site) as session:
        yield Hub(application, session, tmp_path)


async def test_users_read_their_own_notices_the_newest_first(hub: Hub) -> None:
    now = datetime.now(UTC)
    hub.notices.add("ada", Notice(by="olga", at=now - timedelta(days=1), text="For an earlier ada."))
    stop = Notice(by="olga", at=now + timedelta(seconds=1), text="Bye.", servers=("", "main-w0"))
    hub.notices.add("ada", stop)
    hub.notices.add("ada", Notice(by="<i>olga</i>", at=now + timedelta(seconds=2), text="<b>Hello</b>."))
    message = {"by": "<i>olga</i>", "at": now.timestamp() + 2, "text": "<b>Hello</b>.", "servers": []}
    for token in (hub.token(hub.ada), hub.token(hub.ada, NOTEBOOK_SCOPES)):
        assert await hub.ask("GET", "/hub/api/farandole/notices", token) == (
            200,
            [
                {**message, "at": pytest.approx(message["at"])},
                {"by": "olga", "at": stop.at.timestamp(), "text": "Bye.", "servers": ["", "main-w0"]},
            ],
        )
    assert await hub.ask("GET", "/hub/api/farandole/notices", hub.token(hub.olga)) == (200, [])


async def test_others_read_no_notices(hub: Hub) -> None:
    tokens = ["", "wrong", hub.service_token(), hub.token(hub.ada, ["access:servers!server=ada/main-w0"])]
    tokens.append(hub.token(hub.ada, [scope for scope in WORKER_SCOPES if scope != "access:servers!server"]))
    for token in tokens:
        status, answer = await hub.ask("GET", "/hub/api/farandole/notices", token)
        assert (status, answer["status"]) == (403, 403)
    status, _ = await hub.ask("POST", "/hub/api/farandole/notices", hub.token(hub.ada), json={})
    assert status == 405


@pytest.mark.parametrize("hub", ["per-user", "one"], indirect=True)
@pytest.mark.parametrize("server", PATHS)
async def test_a_stop_by_an_administrator_leaves_one_notice(hub: Hub, server: str) -> None:
    hub.start(server)
    assert (await hub.ask("DELETE", PATHS[server], hub.token(hub.olga)))[0] == 204
    assert hub.told() == [("olga", "", (server,))]
    # The server is stopped already.
    assert (await hub.ask("DELETE", PATHS[server], hub.token(hub.olga)))[0] == 204
    assert len(hub.told()) == 1
    hub.start(server)
    assert (await hub.ask("DELETE", PATHS[server], hub.token(hub.olga)))[0] == 204
    assert len(hub.told()) == 2


async def test_repeated_requests_for_one_stop_leave_one_notice(hub: Hub) -> None:
    spawner, token = hub.start("main-w0"), hub.token(hub.olga)
    spawner.may_stop.clear()
    stopping = asyncio.create_task(hub.ask("DELETE", PATHS["main-w0"], token, json={"remove": True}))
    await until(lambda: spawner.pending == "stop")
    for _ in range(3):
        assert (await hub.ask("DELETE", PATHS["main-w0"], token))[0] == 202
    spawner.may_stop.set()
    assert (await stopping)[0] in (202, 204)
    assert hub.told() == [("olga", "", ("main-w0",))]


def full(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def stop_slowly(hub: Hub, proxy: Proxy) -> EdgeSpawner:
    """Let olga stop a server of ada while the proxy does not answer, and return its spawner."""
    hub.application.tornado_application.settings["slow_stop_timeout"] = 0.01
    spawner = hub.start("main-w0")
    proxy.may_answer.clear()
    assert (await hub.ask("DELETE", PATHS["main-w0"], hub.token(hub.olga)))[0] == 202
    assert hub.told() == [("olga", "", ("main-w0",))]
    return spawner


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize(("status", "fails"), [(204, False), (400, True)])
async def test_a_slow_stop_that_fails_withdraws_the_notice(hub: Hub, proxy: Proxy, status: int, fails: bool) -> None:
    spawner = await stop_slowly(hub, proxy)
    proxy.status = status
    proxy.may_answer.set()
    await until(lambda: spawner.pending is None)
    assert spawner.ready == fails
    await until(lambda: len(hub.told()) == (not fails))
    await until(lambda: not ServerHandler._withdrawals)


async def test_a_withdrawal_that_fails_is_logged(
    hub: Hub, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await stop_slowly(hub, proxy)
    hub.application.log.propagate = True
    monkeypatch.setattr(os, "fsync", full)
    proxy.status = 400
    proxy.may_answer.set()
    await until(lambda: "The notice for 'ada' about a stop by 'olga' is not withdrawn: [Errno 28]" in caplog.text)
    assert len(hub.told()) == 1


async def test_a_cancelled_start_leaves_one_notice(hub: Hub) -> None:
    hub.application.tornado_application.settings["slow_spawn_timeout"] = 0.01
    spawner = hub.spawner("")
    assert (await hub.ask("POST", PATHS[""], hub.token(hub.ada)))[0] == 202
    assert spawner.pending == "spawn"
    assert (await hub.ask("DELETE", PATHS[""], hub.token(hub.olga)))[0] == 204
    assert not spawner.active
    assert hub.told() == [("olga", "", ("",))]
    assert hub.notices.of("ada")[0].sentence == "olga stopped your notebook server. Reason: none given."


async def test_stops_by_the_owner_and_by_services_leave_no_notice(hub: Hub) -> None:
    # The operators' service writes the operator's reason itself.
    for token in (hub.token(hub.ada), hub.token(hub.ada, NOTEBOOK_SCOPES), hub.service_token()):
        hub.start("main-w0")
        assert (await hub.ask("DELETE", PATHS["main-w0"], token))[0] == 204
    assert hub.told() == []


async def test_a_refused_stop_leaves_no_notice(hub: Hub) -> None:
    spawner = hub.start("main-w0")
    eve = hub.user("eve")
    for token, status in (("", 403), (hub.token(eve), 404), (hub.token(hub.olga, ["read:servers"]), 403)):
        assert (await hub.ask("DELETE", PATHS["main-w0"], token))[0] == status
    for path in ("/hub/api/users/ada/servers/other", "/hub/api/users/nobody/server"):
        assert (await hub.ask("DELETE", path, hub.token(hub.olga)))[0] == 404
    assert spawner.ready
    assert hub.told() == []


async def test_only_the_hubs_own_host_stops_servers(hub: Hub) -> None:
    spawner, token = hub.start("main-w0"), hub.token(hub.olga)
    assert (await hub.ask("DELETE", PATHS["main-w0"], token, host="ada.hub.localhost:8000"))[0] == 421
    assert spawner.ready


async def test_a_server_that_has_ended_or_does_not_stop_leaves_no_notice(hub: Hub, proxy: Proxy) -> None:
    proxy.status = 400
    spawner = hub.start("main-w0")
    await hub.ask("DELETE", PATHS["main-w0"], hub.token(hub.olga))
    assert spawner.ready
    proxy.status, spawner.alive = 204, False
    assert (await hub.ask("DELETE", PATHS["main-w0"], hub.token(hub.olga)))[0] == 204
    assert hub.told() == []


async def test_a_full_disk_stops_no_stop(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    spawner = hub.start("")
    hub.application.log.propagate = True
    assert (await hub.ask("DELETE", PATHS[""], hub.token(hub.olga)))[0] == 204
    assert not spawner.ready
    assert hub.told() == []
    assert "The notice for 'ada' about a stop by 'olga' is not kept: [Errno 28] No space left on device" in caplog.text


async def test_the_other_requests_about_a_server_are_those_of_jupyterhub(hub: Hub) -> None:
    hub.start("main-w0")
    status, model = await hub.ask("GET", PATHS["main-w0"], hub.token(hub.ada))
    assert (status, model["name"], model["ready"]) == (200, "main-w0", True)
