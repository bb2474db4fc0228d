"""A client for the part of JupyterHub's REST API that Farandole uses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from farandole.driver.workers.addresses import Address
from farandole.driver.workers.worker import REQUEST_TIMEOUT
from farandole.exceptions import (
    DeadlineError,
    HubBusyError,
    HubError,
    HubUnreachableError,
    PermissionDeniedError,
    QuotaError,
)

QUOTA = re.compile(r"this hub allows [0-9]+ for each user|maximum of [0-9]+ named servers")
"""Matches refusals because of a limit: Farandole's own limits and JupyterHub's ``named_server_limit_per_user``."""
NOT_STARTING = re.compile(r"is not starting")
HUB_STOP_SECONDS = 150.0
"""Timeout to stop a server. A starting server can only be stopped once it is up or its start has timed out, which
takes 120 s for local processes."""
STOP_PAUSES = (0.2, 2.0)
"""First and longest pause, in seconds, between checks whether a server has stopped. The pause grows, so that hundreds
of stopping servers do not overload the hub."""
REQUESTS_AT_ONCE = 8
"""Concurrent start requests. The hub is a single process: more requests are not answered sooner, and in a queue of
hundreds the last ones time out."""
STOPS_AT_ONCE = 32
"""Concurrent stop requests. The hub delays its first answer by up to ten seconds if the server is slow to stop."""
EVENTS_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_read=60)
"""A start has no time limit here, but the hub sends a keep-alive every 8 s."""


class HubClient:
    """JupyterHub's REST API with the permissions of one token.

    Source: https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html
    """

    def __init__(
        self,
        *,
        url: str,
        token: str,
        session: aiohttp.ClientSession,
        public: str = "",
        stop_seconds: float = HUB_STOP_SECONDS,
    ) -> None:
        """Use the hub at ``url``, whose address for browsers is ``public`` if that is another one."""
        self.address = Address.of(url, public)
        self.url = self.address.url
        self.token = token
        self.session = session
        self._stop_seconds = stop_seconds
        self._start_slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._stop_slots = asyncio.Semaphore(STOPS_AT_ONCE)
        self._user: str | None = None

    async def user(self) -> str:
        """Return the name of the user that the token belongs to."""
        if self._user is None:
            self._user = str((await self._json("GET", "user"))["name"])
        return self._user

    async def servers(self) -> dict[str, dict[str, Any]]:
        """Return the user's running, starting and stopping servers by name."""
        model = await self._json(
            "GET", f"users/{quote(await self.user(), safe='')}", params={"include_stopped_servers": 0}
        )
        servers: dict[str, dict[str, Any]] = model.get("servers", {})
        return servers

    async def start_server(self, name: str, user_options: dict[str, Any]) -> None:
        """Request the start of a named server; do not wait until it is ready."""
        path = await self._server_path(name)
        async with self._start_slots:
            await _uncancelled(self._json("POST", path, json={"user_options": user_options, "display_name": name}))

    async def stop_server(self, name: str) -> None:
        """Stop and remove a named server; return when the name is free again."""
        path = await self._server_path(name)
        try:
            # The timeout starts after the hub has accepted the first request: among hundreds of servers, most wait
            # for a slot before that.
            async with self._stop_slots:
                exists = await self._delete(path)
            async with asyncio.timeout(self._stop_seconds):
                pause, longest = STOP_PAUSES
                while exists:
                    await asyncio.sleep(pause)
                    pause = min(1.5 * pause, longest)
                    exists = await self._delete(path)
        except TimeoutError as exc:
            raise DeadlineError(
                f"the hub did not stop worker {name} within {self._stop_seconds:g} s; stop it on the hub's home page"
            ) from exc

    async def worker_token(self, name: str) -> str:
        """Return a token that gives access to this worker only, or our own token if the hub's version is too old."""
        path = f"farandole/{await self._server_path(name)}/token"
        try:
            async with self._start_slots:
                answer = await self._json("POST", path)
        except HubError as exc:
            if exc.status != 404:
                raise
            return self.token
        return str(answer["token"])

    async def gpus(self) -> dict[str, dict[str, Any]]:
        """Return the hub's GPUs and their holders by class; empty if the hub does not manage GPUs."""
        try:
            found: dict[str, dict[str, Any]] = await self._json("GET", "farandole/gpus")
        except HubError as exc:
            if exc.status != 404:
                raise
            return {}
        return found

    async def progress(self, name: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the hub's events while a server starts: ``message``, ``progress`` (percent), ``ready``, ``failed``."""
        path = f"{await self._server_path(name)}/progress"
        while True:
            try:
                async with self._request("GET", path, timeout=EVENTS_TIMEOUT) as answer:
                    async for line in answer.content:
                        if line.startswith(b"data:"):
                            yield json.loads(line.removeprefix(b"data:"))
                return
            except aiohttp.ClientError as exc:
                raise self._unreachable(exc) from exc
            except HubError as exc:
                # While the hub cleans up after a failed start, it answers 400; it reports the failure afterwards.
                if not NOT_STARTING.search(str(exc)):
                    raise
            await asyncio.sleep(0.2)

    async def _server_path(self, name: str) -> str:
        return f"users/{quote(await self.user(), safe='')}/servers/{quote(name, safe='')}"

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        async with self._request(method, path, **options) as answer:
            return await answer.json() if answer.content_type == "application/json" else None

    async def _delete(self, path: str) -> bool:
        """Request the removal of a server; return whether it still exists.

        The hub answers 400 while a server starts or stops, and 404 when it is gone.
        """
        try:
            async with self._request("DELETE", path, json={"remove": True}):
                return True
        except HubError as exc:
            if exc.status not in {400, 404}:
                raise
            return exc.status == 400

    def _unreachable(self, exc: Exception) -> HubUnreachableError:
        """Return the error for a hub that does not answer a request, or stops sending."""
        return HubUnreachableError(
            f"no hub answers at {self.url} ({exc}). Check the address, or use `--local` to work without a hub."
        )

    @asynccontextmanager
    async def _request(self, method: str, path: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to the hub's API and yield the answer; raises `HubError` if the hub refuses it."""
        url = f"{self.url}hub/api/{path}"
        headers = {**self.address.headers, "Authorization": f"token {self.token}"}
        options.setdefault("timeout", REQUEST_TIMEOUT)
        try:
            answer = await self.session.request(method, url, headers=headers, allow_redirects=False, **options)
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise self._unreachable(exc) from exc
        async with answer:
            if own := _own_address(answer):
                raise HubError(
                    f"the hub does not serve {self.url}; its own address is {own}. Use that one.", status=answer.status
                )
            if answer.status >= 400:
                reason = _reason(await answer.text())
                raise _refusal(f"{method} {url}", answer.status, reason, answer.headers.get("Retry-After", ""))
            yield answer


def _own_address(answer: aiohttp.ClientResponse) -> str:
    """Return the hub's own address if it redirects there, as it does on every other host; else an empty string."""
    place = urlsplit(answer.headers.get("Location", "")) if 300 <= answer.status < 400 else None
    return f"{place.scheme}://{place.netloc}" if place is not None and place.netloc else ""


def _refusal(request: str, status: int, reason: str, retry_after: str) -> HubError:
    """Return the error for a request that the hub has refused."""
    if status in {401, 403}:
        return PermissionDeniedError(
            f"the hub refused the token ({status} {reason}). It has expired or lacks a scope: restart your notebook "
            "server, or make a new token on the hub's Token page with access to your servers.",
            status=status,
        )
    if status == 429 and retry_after.isdecimal():
        return HubBusyError(
            f"too many servers are starting, and the hub accepts no more for now ({reason}). Try again later, or ask "
            "an administrator to raise the hub's `concurrent_spawn_limit`.",
            status=status,
            retry_seconds=float(retry_after),
        )
    kind = QuotaError if status == 429 or QUOTA.search(reason) else HubError
    return kind(f"the hub answered {status} to {request}: {reason}", status=status)


def _reason(text: str) -> str:
    try:
        message = json.loads(text).get("message") or "without a reason"
    except (ValueError, AttributeError):
        message = text
    return str(message)[:500]


async def _uncancelled(request: Coroutine[Any, Any, None]) -> None:
    """Await a request; delay a cancellation until the hub has answered.

    Otherwise the DELETE that cleans up could overtake the POST: it would find no server, and the one that the POST
    starts would stay.
    """
    task = asyncio.ensure_future(request)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        # A second Ctrl-C cancels this wait as well, and the hub still has not answered.
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        # Retrieve the exception, so that asyncio does not log it as unhandled.
        task.exception()
        raise
