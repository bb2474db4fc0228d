"""A client for the part of JupyterHub's REST API that Farandole uses."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from http.client import responses
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from farandole.driver.workers.addresses import Address
from farandole.driver.workers.notices import Notice, parsed
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
"""Matches the hub's messages about limits that are reached: Farandole's own limits, and JupyterHub's
``named_server_limit_per_user``."""
NOT_STARTING = re.compile(r"is not starting")
HUB_STOP_SECONDS = 150.0
"""How many seconds stopping a server may take. A server that is starting can only be stopped once it is up or its start
has timed out, which takes 120 s for local processes."""
STOP_PAUSES = (0.2, 2.0)
"""The first and the longest pause, in seconds, between two checks of a stopping server. The pause grows so that
hundreds of stopping servers do not overload the hub."""
REQUESTS_AT_ONCE = 8
"""The maximum number of concurrent start requests. The hub is a single process, so more requests would not be answered
sooner, and in a queue of hundreds the last requests would time out."""
STOPS_AT_ONCE = 32
"""The maximum number of concurrent stop requests. The hub delays its first answer by up to ten seconds if a server is
slow to stop."""
OWN_AUTHORITY = (
    "If an authority of your own has signed it, name its file in SSL_CERT_FILE; if not, ask the hub's operator."
)
CERTIFICATE_REMEDIES = {
    9: "Check the clock of this machine.",
    10: "Ask the hub's operator to renew it, or check the clock of this machine.",
    62: "Use the address for which it was made, or ask the hub's operator.",
}
"""What to do about a certificate, by the number of OpenSSL's error (X509_V_ERR_CERT_NOT_YET_VALID, and so on)."""
EVENTS_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_read=60)
"""The timeout for start events. A start may take very long, but the hub sends a keep-alive every 8 s until then."""


class HubClient:
    """JupyterHub's REST API, used with the permissions of one token.

    Source: https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html
    """

    def __init__(
        self,
        *,
        url: str,
        token: str,
        session: aiohttp.ClientSession,
        public: str = "",
        internal: bool = False,
        stop_seconds: float = HUB_STOP_SECONDS,
    ) -> None:
        """Use the hub at ``url``; ``public`` is its address for browsers if that differs from ``url``.

        Messages omit an ``internal`` address. The hub has given it to this process, and users do not know it.
        """
        self.address = Address.of(url, public)
        self.url = self.address.url
        self.token = token
        self.session = session
        self.internal = internal
        self._stop_seconds = stop_seconds
        self._start_slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._stop_slots = asyncio.Semaphore(STOPS_AT_ONCE)
        self._user: str | None = None

    async def user(self) -> str:
        """Return the name of the user who owns the token."""
        if self._user is None:
            self._user = str((await self._object("user"))["name"])
        return self._user

    async def servers(self) -> dict[str, dict[str, Any]]:
        """Return the user's running, starting and stopping servers, indexed by name."""
        model = await self._object(f"users/{quote(await self.user(), safe='')}", params={"include_stopped_servers": 0})
        servers: dict[str, dict[str, Any]] = model.get("servers", {})
        return servers

    async def start_server(self, name: str, user_options: dict[str, Any]) -> None:
        """Request the start of a named server without waiting until the server is ready."""
        path = await self._server_path(name)
        async with self._start_slots:
            await _uncancelled(self._json("POST", path, json={"user_options": user_options, "display_name": name}))

    async def stop_server(self, name: str) -> None:
        """Stop and remove a named server, and wait until its name is available again."""
        path = await self._server_path(name)
        try:
            # The timeout begins after the hub has accepted the first request, because when hundreds of servers are
            # stopped, most have to wait for a slot first.
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
                f"the hub did not stop server {name} within {self._stop_seconds:g} s; stop it on the hub's home page"
            ) from exc

    async def worker_token(self, name: str) -> str:
        """Return a token that gives access to this worker only, or the client's token if the hub cannot issue one."""
        path = f"farandole/{await self._server_path(name)}/token"
        try:
            async with self._start_slots:
                answer = await self._json("POST", path)
        except HubError as exc:
            if exc.status != 404:
                raise
            return self.token
        return str(answer["token"])

    async def endpoint_token(self, name: str, days: float) -> str:
        """Return a new token that can only call this endpoint, for this many days."""
        answer = await self._json("POST", f"farandole/{await self._server_path(name)}/tokens", json={"days": days})
        return str(answer["token"])

    async def shares(self, name: str) -> list[str]:
        """Return the names of the users with whom an endpoint is shared."""
        found: list[str] = (await self._object(f"farandole/{await self._server_path(name)}/shares"))["users"]
        return found

    async def share(self, name: str, user: str, *, allowed: bool) -> None:
        """Allow or forbid another user of the hub to call an endpoint."""
        path = f"farandole/{await self._server_path(name)}/shares/{quote(user, safe='')}"
        await self._json("PUT" if allowed else "DELETE", path)

    async def gpus(self) -> dict[str, dict[str, Any]]:
        """Return the hub's GPUs and their holders by class, or an empty dict if the hub does not manage GPUs."""
        found: dict[str, dict[str, Any]] = await self._json_or_none("farandole/gpus") or {}
        return found

    async def notices(self) -> list[Notice]:
        """Return what operators have left for the user, newest first; nothing if the hub does not keep notices."""
        return parsed(await self._json_or_none("farandole/notices"))

    async def progress(self, name: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the hub's events while a server starts.

        Each event has a ``message`` and the ``progress`` in percent; ``ready`` or ``failed`` marks the last event.
        """
        path = f"{await self._server_path(name)}/progress"
        while True:
            try:
                async with self._request("GET", path, timeout=EVENTS_TIMEOUT) as answer:
                    async for line in answer.content:
                        if line.startswith(b"data:"):
                            yield json.loads(line.removeprefix(b"data:"))
                return
            except HubError as exc:
                # The hub answers 400 while it cleans up after a failed start, and reports the failure afterwards.
                if not NOT_STARTING.search(str(exc)):
                    raise
            await asyncio.sleep(0.2)

    async def read(self, path: str, **options: Any) -> Any:
        """Return the JSON at a path of the hub's API, or None if the answer is something else."""
        with suppress(ValueError, RecursionError):
            return await self._json("GET", path, **options)
        return None

    async def _object(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object at a path.

        Raises HubUnreachableError if something else answers, such as a proxy or the login page of a hotel's network.
        """
        answer = await self.read(path, **options)
        if not isinstance(answer, dict):
            raise self._unreachable(ValueError("another server answers in its place"))
        return answer

    async def _server_path(self, name: str) -> str:
        return f"users/{quote(await self.user(), safe='')}/servers/{quote(name, safe='')}"

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        async with self._request(method, path, **options) as answer:
            return await answer.json() if answer.content_type == "application/json" else None

    async def _json_or_none(self, path: str) -> Any:
        """Return the hub's answer to a GET request, or None if the hub does not know the path or answers no JSON."""
        try:
            return await self._json("GET", path)
        except HubError as exc:
            if exc.status != 404:
                raise
        except (ValueError, RecursionError):
            pass
        return None

    async def _delete(self, path: str) -> bool:
        """Request the removal of a server; return whether the server still exists.

        The hub answers 400 while a server is starting or stopping, and 404 when the server is gone. It answers 500 to
        the later of two clients that remove a server at the same time, and then no longer lists the server.
        """
        try:
            async with self._request("DELETE", path, json={"remove": True}):
                return True
        except HubError as exc:
            if exc.status == 500 and path.rpartition("/")[2] not in map(quote, await self.servers()):
                return False
            if exc.status not in {400, 404}:
                raise
            return exc.status == 400

    def _unreachable(self, exc: Exception) -> HubUnreachableError:
        """Return the error for a hub that does not answer a request or stops sending data."""
        if isinstance(exc, aiohttp.ClientConnectorCertificateError):
            return _untrusted(exc)
        if isinstance(exc, aiohttp.ClientConnectorSSLError):
            return HubUnreachableError(
                f"the server at {self.url} does not answer with https ({exc.strerror or exc}). Check the address and "
                "its port; a hub without a certificate has an address that begins with http://."
            )
        reason = str(exc) or f"no answer within {REQUEST_TIMEOUT.total:g} s"
        if not self.internal:
            return HubUnreachableError(
                f"no hub answers at {self.url} ({reason}). Check the address, or use `--local` to work without a hub."
            )
        error = HubUnreachableError("the hub does not answer; it may be restarting. Try again in a minute.")
        error.add_note(f"{self.url}: {reason}")
        return error

    @asynccontextmanager
    async def _request(self, method: str, path: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to the hub's API and yield the response; raises `HubError` if the hub refuses the request."""
        url = f"{self.url}hub/api/{path}"
        headers = {**self.address.headers, **({"Authorization": f"token {self.token}"} if self.token else {})}
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
            # The connection may break while the caller reads the answer, too.
            try:
                if answer.status >= 400:
                    refusal = _refusal(answer, _reason(await answer.text()))
                    # Most users cannot use this detail, so it is not in the message, but in logs and plain tracebacks.
                    refusal.add_note(f"{method} {url}: {answer.status}")
                    raise refusal
                yield answer
            except (aiohttp.ClientError, TimeoutError) as exc:
                raise self._unreachable(exc) from exc


def _untrusted(exc: aiohttp.ClientConnectorCertificateError) -> HubUnreachableError:
    """Return the error for a hub whose certificate is not valid. The message says what to do about it."""
    found = exc.certificate_error
    why, code = str(found), 0
    if isinstance(found, ssl.SSLCertVerificationError):
        why, code = found.verify_message, found.verify_code
    remedy = CERTIFICATE_REMEDIES.get(code, OWN_AUTHORITY)
    return HubUnreachableError(f"the certificate of {exc.host} is not valid: {why.rstrip('.')}. {remedy}")


def _own_address(answer: aiohttp.ClientResponse) -> str:
    """Return the hub's own address if the hub redirects to it, or an empty string. Hubs redirect from other hosts."""
    place = urlsplit(answer.headers.get("Location", "")) if 300 <= answer.status < 400 else None
    return f"{place.scheme}://{place.netloc}" if place is not None and place.netloc else ""


def _refusal(answer: aiohttp.ClientResponse, reason: str) -> HubError:
    """Return the error for a request that the hub refused. Its message is the hub's reason if that helps the user."""
    status, retry_after = answer.status, answer.headers.get("Retry-After", "")
    phrase = responses.get(status, "")
    said = reason or phrase
    # The page of another server, such as the login page of a hotel's network, says nothing about the token.
    if status in {401, 403} and answer.content_type == "application/json":
        return PermissionDeniedError(
            f"the hub refused the token ({status} {said}). It has expired or lacks a scope: restart your notebook "
            "server, or on a machine of your own, make a new token on the hub's Token page and run `farandole login`.",
            status=status,
        )
    if status == 429 and retry_after.isdecimal():
        return HubBusyError(
            f"too many servers are starting, and the hub accepts no more for now ({said}). Try again later, or ask "
            "an administrator to raise the hub's `concurrent_spawn_limit`.",
            status=status,
            retry_seconds=float(retry_after),
        )
    if status >= 500 or (said == phrase and status != 429):
        return HubError(
            f"the hub could not process a request ({status} {said}). Try again; if the error remains, the hub's log "
            "contains the cause.",
            status=status,
        )
    kind = QuotaError if status == 429 or QUOTA.search(reason) else HubError
    return kind(said, status=status)


def _reason(text: str) -> str:
    """Return the reason in the hub's answer, or an empty string if there is none. A proxy may answer with a page."""
    try:
        message = json.loads(text).get("message") or ""
    except (ValueError, AttributeError):
        message = "" if text.lstrip().startswith("<") else text
    return str(message)[:500]


async def _uncancelled(request: Coroutine[Any, Any, None]) -> None:
    """Await a request, and delay any cancellation until the hub has answered.

    Otherwise the DELETE request of the cleanup could overtake the POST request. It would find no server, and the server
    that the POST request starts would never be removed.
    """
    task = asyncio.ensure_future(request)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        # A second Ctrl-C cancels this wait too, but the hub still has not answered.
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        # Retrieve the exception so that asyncio does not log it as unhandled.
        task.exception()
        raise
