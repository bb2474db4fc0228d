"""Tests for what the operators' pages do while the hub refuses a request, does not answer, or restarts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import pytest
from jinja2 import Template
from tornado.httpclient import AsyncHTTPClient, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, HTTPError

from hub.services.operators.client import HubClient, HubRefusedError
from hub.services.operators.handlers import (
    MOST_PROBLEMS,
    MessageHandler,
    MetricsHandler,
    StopHandler,
    UsageHandler,
)
from hub.services.operators.office import MOST_OUTCOMES, Office, Outcomes
from spawner_config.operators.notices import Notices
from spawner_config.operators.site import Site, Size
from spawner_config.snapshots.record import MirrorRecord, record_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RESTARTS = "The hub does not answer. It may be restarting: try again in a minute."
SERVER = {"pending": None, "ready": True, "stopped": False, "last_activity": "2026-05-01T12:00:00Z"}


class Hub:
    """A hub on which ada has a notebook server and a worker."""

    def __init__(self, notices: Notices) -> None:
        self.notices = notices
        self.answers = True
        self.refused: set[str] = set()
        """The servers that the hub does not stop."""
        self.told: list[tuple[str, ...]] = []
        """The servers in ada's notice at the moment of each stop."""
        self.status_of_login: int | None = None
        self.listed: list[bool] = []
        """Whether each list of users was one of the users with a server."""

    async def users(self, *, active: bool = False) -> list[dict[str, Any]]:
        if not self.answers:
            raise HubRefusedError("the hub does not answer")
        self.listed.append(active)
        return [{"name": "ada", "servers": {name: {"name": name, **SERVER} for name in ("", "main-w0")}}]

    async def count_users(self) -> int:
        return 5000

    async def gpus(self) -> dict[str, Any]:
        return {}

    async def stop(self, user: str, server: str) -> None:
        self.told += [notice.servers for notice in self.notices.of(user)]
        if server in self.refused:
            raise HubRefusedError("the hub does not answer")

    def get_user(self, _handler: object) -> dict[str, str]:
        if self.status_of_login:
            raise HTTPError(self.status_of_login, "Failed to connect to Hub API")
        return {"name": "olga", "kind": "user"}


class Stop(StopHandler):
    def check_xsrf_cookie(self) -> None:
        """Accept the requests of these tests."""


class Message(MessageHandler):
    def check_xsrf_cookie(self) -> None:
        """Accept the requests of these tests."""


class Usage(UsageHandler):
    @property
    def xsrf_token(self) -> bytes:
        """A token that needs no cookie of the hub."""
        return b"x"


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(Notices(tmp_path))


@pytest.fixture
async def service(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The address of the pages for this hub."""
    options = {"base_url": "/", "hub_prefix": "/hub/", "_persist_url_token_if_set": lambda _handler: None}
    auth = SimpleNamespace(get_user=hub.get_user, **options)
    for handler in (UsageHandler, Stop, Message):
        monkeypatch.setattr(handler, "hub_auth", auth)
    monkeypatch.setattr("jupyterhub.services.auth.HubAuthenticated.check_hub_user", lambda _self, model: model)
    size = Size(ranks=1, gpus=0, memory=None)
    office = Office(
        client=cast("HubClient", hub),
        site=Site(state=tmp_path, profiles={"cpu": size}, limits={}, local=False, danger="Beware.", mirror="/mnt"),
        template=Template("{{ danger }} {{ outcome }}{{ mirror | join(' ') }}"),
        origin="",
        notices=hub.notices,
    )
    shared = {"office": office}
    metrics = ("/metrics", MetricsHandler, {**shared, "tokens": auth})
    server = HTTPServer(
        Application([("/", Usage, shared), ("/stop", Stop, shared), ("/message", Message, shared), metrics])
    )
    sock, port = bind_unused_port()
    server.add_socket(sock)
    yield f"http://127.0.0.1:{port}"
    server.stop()


async def ask(url: str, **fields: str) -> HTTPResponse:
    options = {"method": "POST", "body": urlencode(fields)} if fields else {}
    return await AsyncHTTPClient().fetch(url, raise_error=False, follow_redirects=False, **options)


@pytest.mark.parametrize("path", ["/", "/metrics"])
async def test_a_page_says_that_the_hub_restarts(hub: Hub, service: str, path: str) -> None:
    hub.answers = False
    answer = await ask(f"{service}{path}")
    assert (answer.code, answer.reason) == (503, RESTARTS)
    assert RESTARTS in answer.body.decode()


@pytest.mark.parametrize(("status", "shown"), [(500, 503), (502, 503), (403, 403)])
async def test_a_login_that_the_hub_cannot_check_is_answered_with_503(
    hub: Hub, service: str, status: int, shown: int
) -> None:
    hub.status_of_login = status
    assert (await ask(f"{service}/metrics")).code == shown


async def test_the_notice_comes_before_the_stop(hub: Hub, service: str) -> None:
    assert (await ask(f"{service}/stop", user="ada", text="Bye.")).code == 303
    assert hub.told == [("", "main-w0")] * 2
    [notice] = hub.notices.of("ada")
    assert (notice.by, notice.text, notice.servers) == ("olga", "Bye.", ("", "main-w0"))


@pytest.mark.parametrize(("refused", "left"), [({"main-w0"}, [("",)]), ({""}, [("main-w0",)]), ({"", "main-w0"}, [])])
async def test_the_notice_names_only_the_servers_that_did_stop(
    hub: Hub, service: str, refused: set[str], left: list[tuple[str, ...]]
) -> None:
    hub.refused = refused
    assert (await ask(f"{service}/stop", user="ada", text="Bye.")).code == 303
    assert len(hub.told) == 2
    assert [notice.servers for notice in hub.notices.of("ada")] == left


async def test_a_full_disk_keeps_no_text_but_stops_no_action(service: str, tmp_path: Path) -> None:
    # Nothing can be written to a folder that is a file.
    (tmp_path / "notices").write_text("")
    for action, outcome in (("stop", "Stopped servers of ada: notebook, main-w0. The text"), ("message", "The text")):
        answer = await ask(f"{service}/{action}", user="ada", text="Bye.")
        assert answer.code == 303
        page = await ask(f"{service}{answer.headers['Location']}")
        kept = "for the user is not kept (File exists). Check the free space for the hub's state."
        assert page.body.decode() == f"Beware. {outcome} {kept}"


async def test_metrics_list_only_users_with_servers_and_only_once_for_many_scrapers(hub: Hub, service: str) -> None:
    answers = await asyncio.gather(*(ask(f"{service}/metrics") for _ in range(3)), ask(f"{service}/metrics"))
    assert [answer.code for answer in answers] == [200] * 4
    assert {"farandole_users 5000.0", "farandole_users_active 1.0"} <= set(answers[0].body.decode().splitlines())
    assert hub.listed == [True]


async def test_metrics_are_asked_for_again_after_a_while_and_after_an_error(
    hub: Hub, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.answers = False
    assert (await ask(f"{service}/metrics")).code == 503
    hub.answers = True
    monkeypatch.setattr("hub.services.operators.office.USAGE_SECONDS", 0.0)
    assert [(await ask(f"{service}/metrics")).code for _ in range(2)] == [200, 200]
    assert hub.listed == [True, True]


async def test_a_page_shows_the_danger_and_only_the_outcome_of_its_own_action(hub: Hub, service: str) -> None:
    answers = [await ask(f"{service}/stop", user="ada", server=name, text="Bye.") for name in ("main-w0", "")]
    places = [answer.headers["Location"] for answer in answers]
    assert (await ask(f"{service}/")).body == b"Beware. "
    second, first = [(await ask(f"{service}{place}")).body.decode() for place in reversed(places)]
    assert first == "Beware. Stopped servers of ada: main-w0."
    assert second == "Beware. Stopped servers of ada: notebook."
    assert (await ask(f"{service}{places[0]}")).body == b"Beware. "


async def test_a_page_shows_the_first_problems_of_the_mirror(service: str, tmp_path: Path) -> None:
    record_path(tmp_path).parent.mkdir(parents=True)
    MirrorRecord(place="/mnt", problems=[f"{number}." for number in range(MOST_PROBLEMS + 1)]).write(tmp_path)
    assert (await ask(f"{service}/")).body == b"Beware. 0. 1. 2. 3. 4."
    # Those of a place that is no longer the mirror do not matter.
    MirrorRecord(place="/other", problems=["0."]).write(tmp_path)
    assert (await ask(f"{service}/")).body == b"Beware. "


def test_an_outcome_belongs_to_its_operator_and_old_ones_are_forgotten() -> None:
    outcomes = Outcomes()
    first, *_, last = [outcomes.keep("olga", str(number)) for number in range(MOST_OUTCOMES + 1)]
    assert (outcomes.take("otto", last), outcomes.take("olga", first)) == ("", "")
    assert outcomes.take("olga", last) == str(MOST_OUTCOMES)


async def test_nothing_is_stopped_while_the_hub_restarts(hub: Hub, service: str) -> None:
    hub.answers = False
    assert (await ask(f"{service}/stop", user="ada", text="Bye.")).code == 503
    assert (hub.told, hub.notices.of("ada")) == ([], [])
