"""Workers that a JupyterHub starts as named servers of the user."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import quote

import aiohttp

from farandole.driver.loop import all_or_first_error
from farandole.driver.workers.worker import REQUEST_TIMEOUT, Progress, Worker, WorkerOptions, WorkerSource
from farandole.exceptions import (
    ClusterExistsError,
    DeadlineError,
    FarandoleError,
    HubBusyError,
    HubError,
    HubUnreachableError,
    NoClusterError,
    PermissionDeniedError,
    QuotaError,
    WorkerStartError,
)

WORKER_NAME = re.compile(r"^(?P<cluster>[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)-w(?P<index>[0-9]+)$")
QUOTA = re.compile(r"this hub allows [0-9]+ for each user|maximum of [0-9]+ named servers")
"""How the limits of Farandole's own hub and JupyterHub's ``named_server_limit_per_user`` word a refusal."""
CLEANING_UP = re.compile(r"is not starting")
STOP_SECONDS = 150.0
"""A server on its way up cannot be stopped before it is up, or the hub has given it up (120 s with local processes)."""
STOP_PAUSES = (0.2, 2.0)
"""Seconds until it is first asked whether a server is gone, and at most: hundreds that stop must not keep the hub."""
REQUESTS_AT_ONCE = 8
"""A hub of one process answers many at once no sooner, and with hundreds in its queue the last ones too late."""
STOPS_AT_ONCE = 32
"""The hub keeps the first such request for ten seconds where a server ends slowly; later ones it answers at once."""
EVENTS_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_read=60)
"""A start may take its time; the hub sends a sign of life every 8 s meanwhile."""


class HubClient:
    """The part of JupyterHub's REST API that Farandole uses, as one user.

    Source: https://jupyterhub.readthedocs.io/en/stable/reference/rest-api.html
    """

    def __init__(
        self, *, url: str, token: str, session: aiohttp.ClientSession, stop_seconds: float = STOP_SECONDS
    ) -> None:
        self.url = url.rstrip("/") + "/"
        self.token = token
        self.session = session
        self._stop_seconds = stop_seconds
        self._asking = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._stopping = asyncio.Semaphore(STOPS_AT_ONCE)
        self._user: str | None = None

    async def user(self) -> str:
        """Return the name of the user that the token belongs to."""
        if self._user is None:
            self._user = str((await self._json("GET", "user"))["name"])
        return self._user

    async def servers(self) -> dict[str, dict[str, Any]]:
        """Return the user's servers that run or are on their way, by name."""
        model = await self._json(
            "GET", f"users/{quote(await self.user(), safe='')}", params={"include_stopped_servers": 0}
        )
        servers: dict[str, dict[str, Any]] = model.get("servers", {})
        return servers

    async def start_server(self, name: str, user_options: dict[str, Any]) -> None:
        """Ask the hub to start a named server; returns at once."""
        path = await self._server_path(name)
        async with self._asking:
            await _whole(self._json("POST", path, json={"user_options": user_options, "display_name": name}))

    async def stop_server(self, name: str) -> None:
        """Stop a named server, remove it and wait until its name is free again."""
        path = await self._server_path(name)
        try:
            # Its time begins when the hub has heard of it: of hundreds, many wait for their turn to ask.
            async with self._stopping:
                there = await self._still_there("DELETE", path, json={"remove": True})
            async with asyncio.timeout(self._stop_seconds):
                pause, longest = STOP_PAUSES
                while there:
                    await asyncio.sleep(pause)
                    pause = min(1.5 * pause, longest)
                    there = await self._still_there("DELETE", path, json={"remove": True})
        except TimeoutError as exc:
            raise DeadlineError(
                f"the hub has not stopped worker {name} within {self._stop_seconds:g} s; stop it on the hub's home page"
            ) from exc

    async def gpus(self) -> dict[str, dict[str, Any]]:
        """Return who holds the hub's GPUs, by class; empty where the hub does not count any."""
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
        async with self._settled(path) as answer:
            try:
                async for line in answer.content:
                    if line.startswith(b"data:"):
                        yield json.loads(line.removeprefix(b"data:"))
            except aiohttp.ClientError as exc:
                raise self._unreachable(exc) from exc

    @asynccontextmanager
    async def _settled(self, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open the events of a start. While the hub cleans up after one that failed, it does not tell why yet."""
        async with AsyncExitStack() as stack:
            while True:
                try:
                    request = self._request("GET", path, timeout=EVENTS_TIMEOUT)
                    answer = await stack.enter_async_context(request)
                    break
                except HubError as exc:
                    if not CLEANING_UP.search(str(exc)):
                        raise
                await asyncio.sleep(0.2)
            yield answer

    async def _server_path(self, name: str) -> str:
        return f"users/{quote(await self.user(), safe='')}/servers/{quote(name, safe='')}"

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        async with self._request(method, path, **options) as answer:
            return await answer.json() if answer.content_type == "application/json" else None

    async def _still_there(self, method: str, path: str, **options: Any) -> bool:
        """Make a request and tell whether its object exists; a server on its way up or down answers 400."""
        try:
            async with self._request(method, path, **options):
                return True
        except HubError as exc:
            if exc.status not in {400, 404}:
                raise
            return exc.status == 400

    def _unreachable(self, exc: Exception) -> HubUnreachableError:
        return HubUnreachableError(
            f"no hub answers at {self.url} ({exc}). Check the address, or use `--local` to go without a hub."
        )

    @asynccontextmanager
    async def _request(self, method: str, path: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        url = f"{self.url}hub/api/{path}"
        headers = {"Authorization": f"token {self.token}"}
        options.setdefault("timeout", REQUEST_TIMEOUT)
        try:
            answer = await self.session.request(method, url, headers=headers, **options)
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise self._unreachable(exc) from exc
        async with answer:
            if answer.status >= 400:
                reason = _reason(await answer.text())
                raise _refusal(f"{method} {url}", answer.status, reason, answer.headers.get("Retry-After", ""))
            yield answer


def _refusal(what: str, status: int, reason: str, retry_after: str) -> HubError:
    if status in {401, 403}:
        return PermissionDeniedError(
            f"the hub refused the token ({status} {reason}). It has expired or lacks a scope: restart your notebook "
            "server, or make a new token on the hub's Token page with access to your servers.",
            status=status,
        )
    if status == 429 and retry_after.isdecimal():
        return HubBusyError(
            f"so many servers start on the hub that it takes no more for now ({reason}). Try it again later, or have "
            "`concurrent_spawn_limit` of the hub raised.",
            status=status,
            retry_seconds=float(retry_after),
        )
    kind = QuotaError if status == 429 or QUOTA.search(reason) else HubError
    return kind(f"the hub answered {status} to {what}: {reason}", status=status)


def _reason(text: str) -> str:
    try:
        message = json.loads(text).get("message") or "without a reason"
    except (ValueError, AttributeError):
        message = text
    return str(message)[:500]


class HubWorkers(WorkerSource):
    """Workers that are named servers ``<cluster>-w<i>`` of the token's user."""

    def __init__(self, client: HubClient) -> None:
        self._client = client

    @classmethod
    def from_environment(cls, url: str | None, token: str | None, session: aiohttp.ClientSession) -> HubWorkers:
        """Use the given address and token, else those of the notebook server that this process runs in.

        Raises:
            NoClusterError: there is no hub here and none was given.
        """
        url = url or os.environ.get("FARANDOLE_HUB_URL")
        token = token or os.environ.get("JUPYTERHUB_API_TOKEN")
        if not url or not token:
            raise NoClusterError(
                "there is no JupyterHub here: this kernel was not started by one. Use `%cluster start --local` for "
                "ranks on this machine, or give `hub_url=` and `token=`."
            )
        return cls(HubClient(url=url, token=token, session=session))

    @property
    def client(self) -> HubClient:
        """The hub's API."""
        return self._client

    async def start(
        self, names: Sequence[str], options: WorkerOptions, progress: Progress, timeout: float
    ) -> list[Worker]:
        """Start named servers, all or none."""
        servers = await self._client.servers()
        if taken := sorted(set(names) & set(servers)):
            raise ClusterExistsError(
                f"cluster {options.cluster!r} is there already (worker {taken[0]}). Use "
                f"`%cluster attach {options.cluster}`, or choose another `--name`."
            )
        try:
            return await all_or_first_error([self._start_one(name, options, progress, timeout) for name in names])
        except BaseException:
            await self._clean_up(names, progress)
            raise

    async def find(self, cluster: str) -> list[Worker]:
        """Return the cluster's ready workers in order."""
        found = {}
        for name, server in (await self._client.servers()).items():
            match = WORKER_NAME.match(name)
            if match and match["cluster"] == cluster and server.get("ready"):
                found[int(match["index"])] = await self.worker(name, server["url"])
        return [found[index] for index in sorted(found)]

    async def clusters(self) -> dict[str, int]:
        """Return the user's clusters and their numbers of workers."""
        counts: dict[str, int] = {}
        for name in await self._client.servers():
            if match := WORKER_NAME.match(name):
                counts[match["cluster"]] = counts.get(match["cluster"], 0) + 1
        return counts

    async def names(self, cluster: str) -> list[str]:
        """Return the names of the cluster's workers, those that start or hang included."""
        matches = (WORKER_NAME.match(name) for name in await self._client.servers())
        return sorted(match[0] for match in matches if match and match["cluster"] == cluster)

    async def gpus(self) -> dict[str, dict[str, Any]]:
        """Return who holds the hub's GPUs."""
        return await self._client.gpus()

    async def stop(self, names: Sequence[str], /) -> None:
        """Stop and remove these servers; the first trouble is raised once all were tried."""
        outcomes = await asyncio.gather(*(self._client.stop_server(name) for name in names), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def close(self) -> None:
        """Close the connections; the workers live on and can be attached again."""
        await self._client.session.close()

    async def _clean_up(self, names: Sequence[str], progress: Progress) -> None:
        """Stop what a failed start may have left; trouble with it is told, and must not hide why the start failed."""
        try:
            await self.stop(names)
        except FarandoleError as exc:
            progress(f"workers {', '.join(names)} may be left: {exc}")

    async def _start_one(self, name: str, options: WorkerOptions, progress: Progress, timeout: float) -> Worker:
        await self._ask_for(name, options, timeout)
        message = "nothing heard from it yet"
        try:
            async with asyncio.timeout(timeout) as deadline:
                async with aclosing(self._client.progress(name)) as events:
                    async for event in events:
                        message = event.get("message", message)
                        if "queue" in event:
                            _tell_queue(name, event, progress, deadline, timeout)
                        if event.get("failed"):
                            raise WorkerStartError(f"worker {name} failed to start. The hub says: {message}")
                        if event.get("ready"):
                            progress(f"worker {name} is ready")
                            return await self.worker(name, event["url"])
        except TimeoutError as exc:
            raise WorkerStartError(
                f"worker {name} did not start within {timeout:g} s. The hub's last word: {message}. All workers of "
                "this start were stopped; try again with a longer `--timeout`, or have a look at the hub's log."
            ) from exc
        raise WorkerStartError(f"the hub stopped telling about worker {name} before it was ready: {message}")

    async def _ask_for(self, name: str, options: WorkerOptions, timeout: float) -> None:
        """Ask the hub for a worker, again and again while it starts so many that it takes no more."""
        give_up = asyncio.get_running_loop().time() + timeout
        while True:
            try:
                return await self._client.start_server(name, options.user_options())
            except HubBusyError as busy:
                if asyncio.get_running_loop().time() + busy.retry_seconds > give_up:
                    raise
                pause = busy.retry_seconds
            await asyncio.sleep(pause)

    async def worker(self, name: str, path: str) -> Worker:
        """Return a worker by its name and its address, or its path on the hub."""
        url = self._client.url.rstrip("/") + path if path.startswith("/") else path
        return Worker(
            name=name,
            url=url.rstrip("/") + "/",
            token=self._client.token,
            session=self._client.session,
            presence=partial(self._presence, name),
        )

    async def _presence(self, name: str) -> bool | None:
        """Say whether the hub still has a worker; None where the hub, or the proxy before it, does not answer."""
        try:
            return name in await self._client.servers()
        except HubError:
            return None


async def _whole(request: Coroutine[Any, Any, None]) -> None:
    """Await a request; when cancelled, go only once it is answered.

    What a request has begun cannot be stopped before the hub knows of it: a DELETE that overtakes the POST of a server
    finds nothing, and the server would stay.
    """
    task = asyncio.ensure_future(request)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        # However often it is cancelled: a second Ctrl-C is no answer of the hub either.
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        task.exception()
        raise


def _tell_queue(
    name: str, event: dict[str, Any], progress: Progress, deadline: asyncio.Timeout, timeout: float
) -> None:
    """Tell the user of a worker's place in the queue for GPUs; the time there does not count, the start's does."""
    progress(f"worker {name}: {event['message']}")
    waiting = event["queue"] > 0
    deadline.reschedule(None if waiting else asyncio.get_running_loop().time() + timeout)
