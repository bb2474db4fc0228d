"""Floods the hub with one user's requests over 20 connections, and measures the response times for another user."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from farandole.driver.workers.addresses import LocalhostResolver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONNECTIONS = 20
PROBE_SECONDS = 0.1
NOTE = "n" * 4_000
OPTION = "o" * 16_000
"""The note and the option are about as long as the hub allows."""
SESSION = "s" * 14_000
"""The session id is about as long as the proxy allows."""
BODY = 4_000_000
PASSWORD = "three quiet horses"
PASSWORD_FIELDS = ("signup_password", "signup_password_confirmation")
CHUNK = 65536

REACHED = {
    "token": {201},
    "server": {201},
    "start": {400},
    "worker": {400},
    "options": {200},
    "list": {200},
    "code": {302},
    "large login": {400, 413},
    "large body": {400, 413},
    "login": {403},
    "sign-up": {200},
}
"""For each kind of request, the statuses with which the hub answers it.

The proxy may answer 503 instead. A request has status 0 if its connection breaks, and 401 if the hub asks for a login.
"""
FAILING_STARTS = ("start", "worker")
"""Kinds to which the hub may also answer 500: JupyterHub 6 does so if a start fails just as the request times out."""


@dataclass(kw_only=True)
class Flood:
    """Requests of ``user`` with ``token``, logins, sign-ups, and requests of another user with the token ``probe``.

    The user's server is running, and a browser with the hub's cookie ``login`` repeatedly opens it. Each connection
    repeats one kind of request, so that slow requests do not delay the others.
    """

    url: str
    user: str
    token: str
    login: str
    probe: str
    statuses: dict[str, dict[int, int]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def run(self, duration: float) -> None:
        """Flood the hub for ``duration`` seconds."""
        asyncio.run(self._run(duration))

    @property
    def p99(self) -> float:
        """The 99th percentile of the response times for the other user, in seconds."""
        return sorted(self.seconds)[int(0.99 * (len(self.seconds) - 1))]

    def assert_reached(self) -> None:
        """Raise AssertionError unless the hub handled each kind of request, and none failed in the hub."""
        for kind, statuses in self.statuses.items():
            assert REACHED[kind] & set(statuses), (kind, self.statuses)
            assert kind in FAILING_STARTS or 500 not in statuses, (kind, self.statuses)
        assert set(self.statuses) == set(REACHED), self.statuses

    async def _run(self, duration: float) -> None:
        end = time.monotonic() + duration
        timeout = aiohttp.ClientTimeout(total=60)
        # The other user has any number of connections, so that no request waits for the answer to another one here.
        many, any_number = (
            aiohttp.TCPConnector(limit=limit, resolver=LocalhostResolver()) for limit in (CONNECTIONS, 0)
        )
        async with (
            aiohttp.ClientSession(connector=many, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as attacker,
            aiohttp.ClientSession(connector=any_number, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as other,
        ):
            attacks = [self._attack(attacker, number, end) for number in range(CONNECTIONS)]
            await asyncio.gather(self._probe(other, end), *attacks)

    async def _attack(self, session: aiohttp.ClientSession, number: int, end: float) -> None:
        kind = list(REACHED)[number % len(REACHED)]
        headers, fields = await self._form(session)
        for turn in itertools.count(number, CONNECTIONS):
            if time.monotonic() > end:
                return
            method, path, options = self._requests(turn, headers, fields)[kind]
            try:
                async with session.request(method, f"{self.url}{path}", allow_redirects=False, **options) as answer:
                    await answer.read()
                    to_login = "/hub/login" in answer.headers.get("Location", "")
                    status = 401 if to_login else answer.status
            except (aiohttp.ClientError, TimeoutError):
                status = 0
            counts = self.statuses.setdefault(kind, {})
            counts[status] = counts.get(status, 0) + 1

    async def _form(self, session: aiohttp.ClientSession) -> tuple[dict[str, str], dict[str, str]]:
        """Return the headers and the fields with which the hub accepts a form from this client."""
        async with session.get(f"{self.url}/hub/login") as answer:
            answer.raise_for_status()
            cookies = {name: cookie.value for name, cookie in answer.cookies.items()}
        header = "; ".join(f"{name}={value}" for name, value in cookies.items())
        return {"Cookie": header}, {"_xsrf": cookies["_xsrf"]}

    def _requests(
        self, turn: int, headers: dict[str, str], fields: dict[str, str]
    ) -> dict[str, tuple[str, str, dict[str, Any]]]:
        """Return the method, the path and aiohttp's arguments of a request of each kind."""
        own = {"headers": {"Authorization": f"token {self.token}"}}
        users = f"/hub/api/users/{quote(self.user, safe='')}"
        login = {**fields, "username": f"u{turn}", "password": PASSWORD}
        sign_up = {**fields, "username": f"u{turn}", **dict.fromkeys(PASSWORD_FIELDS, PASSWORD)}
        options = {"user_options": {"profile": OPTION}}
        # Each code has another session id, as the codes of many browsers have.
        browser = {"Cookie": f"{self.login}; jupyterhub-session-id={SESSION}{turn}"}
        client = {"client_id": f"jupyterhub-user-{self.user}", "response_type": "code"}
        return {
            "token": ("POST", f"{users}/tokens", {"json": {"note": NOTE}, **own}),
            "server": ("PUT", f"{users}/servers/kept{turn}", {"json": options, **own}),
            "start": ("POST", f"{users}/servers/asked{turn}", {"json": options, **own}),
            "worker": ("POST", f"{users}/servers/flood{turn}-w0", {"json": {"role": "worker"}, **own}),
            # The first server is that of connection 1 or 12. The hub does not change the options of a running one.
            "options": ("PATCH", f"{users}/servers/kept{12 if turn % 2 else 1}", {"json": options, **own}),
            "list": ("GET", f"{users}/tokens", own),
            "code": ("GET", "/hub/api/oauth2/authorize", {"params": client, "headers": browser}),
            "large login": ("POST", "/hub/login", {"data": _large()}),
            "large body": ("POST", f"{users}/servers/big{turn}", {"data": _large(), **own}),
            "login": ("POST", "/hub/login", {"data": login, "headers": headers}),
            "sign-up": ("POST", "/hub/signup", {"data": sign_up, "headers": headers}),
        }

    async def _probe(self, session: aiohttp.ClientSession, end: float) -> None:
        """Send a request every `PROBE_SECONDS`, even if the hub has not answered the earlier ones yet.

        If each request waited for the previous answer, a hub that is blocked for ten seconds would delay only one.
        """
        async with asyncio.TaskGroup() as requests:
            due = time.monotonic()
            while due < end:
                await asyncio.sleep(due - time.monotonic())
                requests.create_task(self._probe_once(session, due))
                due += PROBE_SECONDS

    async def _probe_once(self, session: aiohttp.ClientSession, due: float) -> None:
        headers = {"Authorization": f"token {self.probe}"}
        async with session.get(f"{self.url}/hub/api/user", headers=headers) as answer:
            answer.raise_for_status()
            await answer.read()
        self.seconds.append(time.monotonic() - due)


async def _large() -> AsyncIterator[bytes]:
    for _ in range(BODY // CHUNK):
        yield bytes(CHUNK)
