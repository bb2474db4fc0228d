"""A worker: one Jupyter server that holds ranks, wherever it runs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp

from farandole.driver.workers.journal import WorkerJournal
from farandole.exceptions import WorkerStartError
from farandole.protocol import RECORD_SIGN_SECONDS

Progress: TypeAlias = Callable[[str], None]
"""Called with one line for the user while workers start."""

HEARTBEAT_SECONDS = 20.0
"""How often a worker's websocket is asked for a sign of life; a host without power closes no connection."""
OPEN_SECONDS = 15.0
"""How long a websocket may take to open; a server that hangs, or a proxy, answers nothing."""
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30)
FOLLOW_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=3 * RECORD_SIGN_SECONDS)
"""A rank may be silent for hours, its worker not: of one that was killed a proxy may leave the answer open for ever."""

Presence: TypeAlias = Callable[[], Awaitable[bool | None]]
"""Says whether those who started a worker still have it; None where they cannot be asked."""


async def _gone() -> bool | None:
    return False


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """What a worker says of itself (``GET farandole/worker``).

    The hub stops a worker that has been idle for ``idle_minutes``; 0: never. ``idle_seconds`` is how long it was idle
    when it was asked; None: one of its ranks computes.
    """

    worker: str
    ranks: int
    profile: str
    host: str
    address: str
    node: str
    backends: tuple[str, ...]
    idle_minutes: float = 0.0
    idle_seconds: float | None = 0.0
    backend: str = ""
    """The backend that its cluster was started with; empty where nobody chose one."""

    @property
    def machine(self) -> str:
        """The boot of a machine that its node is part of; see `farandole.server.worker.routes.node_id`."""
        return self.node.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class WorkerLook:
    """How a worker is now (``GET farandole/look``): of itself, what it uses, and the ids of runs that go on there.

    ``usage`` is ``Usage`` of `farandole.server.panel.wire`.
    """

    info: WorkerInfo
    usage: dict[str, Any]
    runs: tuple[str, ...]


class Worker:
    """A Jupyter server at `url` (with a trailing slash), reached with `token` over an injected client session."""

    def __init__(
        self, *, name: str, url: str, token: str, session: aiohttp.ClientSession, presence: Presence | None = None
    ) -> None:
        self.name = name
        self.url = url
        self.presence = presence or _gone
        """Without anybody to ask, a worker that does not answer is gone."""
        self._headers = {"Authorization": f"token {token}"}
        self._session = session

    async def info(self) -> WorkerInfo:
        """Ask the worker what it offers."""
        return self._info(await self._request("GET", "farandole/worker"))

    async def look(self) -> WorkerLook:
        """Ask the worker how it is now."""
        answer = await self._request("GET", "farandole/look")
        if answer is None:
            raise WorkerStartError(f"not worker {self.name} but another answered GET farandole/look; try it again")
        return WorkerLook(info=self._info(answer["info"]), usage=answer["usage"], runs=tuple(answer["runs"]))

    async def log(self, offset: int) -> dict[str, Any]:
        """Return ``offset``, ``next``, ``size`` and ``text`` of a part of the log of the worker's server."""
        answer = await self._request("GET", "farandole/log", params={"offset": offset})
        if answer is None:
            raise WorkerStartError(f"not worker {self.name} but another answered GET farandole/log; try it again")
        part: dict[str, Any] = answer
        return part

    def _info(self, answer: dict[str, Any]) -> WorkerInfo:
        return WorkerInfo(**{**answer, "worker": self.name, "backends": tuple(answer["backends"])})

    async def open_rendezvous(self, slots: list[dict[str, Any]], *, host: str) -> int:
        """Open Horovod's rendezvous for these slots on the worker, at `host` or everywhere; return its port."""
        answer = await self._request("POST", "farandole/rendezvous", json={"slots": slots, "host": host})
        return int(answer["port"])

    async def start_kernel(self, slot: int) -> str:
        """Start a kernel for the given slot (0 to ranks - 1) and return its id.

        It is started as a Jupyter session whose path names the slot, so that `kernels` finds it again.
        """
        body = {"path": f"rank-{slot}", "name": f"rank-{slot}", "type": "console", "kernel": {"name": "python3"}}
        answer = await self._request("POST", "api/sessions", json=body)
        return str(answer["kernel"]["id"])

    async def kernels(self) -> dict[int, str]:
        """Return the ids of the rank kernels that run on the worker, by slot."""
        sessions = await self._request("GET", "api/sessions")
        return {
            int(session["path"].removeprefix("rank-")): session["kernel"]["id"]
            for session in sessions
            if session["path"].startswith("rank-")
        }

    async def interrupt_kernel(self, kernel_id: str) -> None:
        """Send a kernel SIGINT."""
        await self._request("POST", f"api/kernels/{kernel_id}/interrupt", missing_ok=True)

    async def stop_kernel(self, kernel_id: str) -> None:
        """End a kernel, by force where it does not go."""
        await self._request("DELETE", f"api/kernels/{kernel_id}", missing_ok=True)

    async def kernel_socket(self, kernel_id: str, session_id: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """Open the websocket to a kernel's channels."""
        url = f"{self.url}api/kernels/{kernel_id}/channels"
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await self._session.ws_connect(
                    url,
                    params={"session_id": session_id},
                    headers=self._headers,
                    protocols=(protocol,),
                    max_msg_size=0,
                    compress=0,
                    heartbeat=HEARTBEAT_SECONDS,
                )
        except (TimeoutError, aiohttp.ClientError) as exc:
            reason = str(exc) or f"no answer within {OPEN_SECONDS:g} s"
            raise WorkerStartError(f"worker {self.name} opened no channel to its kernel: {reason}") from exc

    async def records(self) -> WorkerJournal:
        """Return the kernels that live on the worker and what it has recorded of runs."""
        answer = await self._request("GET", "farandole/records")
        if answer is None:
            # While a server ends or starts, the hub shows a page of its own in its place.
            raise WorkerStartError(f"not worker {self.name} but another answered GET farandole/records; try it again")
        return WorkerJournal.from_json(answer)

    async def follow(self, run: str, kernel_id: str, after: int) -> AsyncGenerator[bytes, None]:
        """Yield what a kernel said in a run, from message ``after`` + 1 on, as it comes: websocket frames."""
        path = f"farandole/records/{run}/{kernel_id}"
        try:
            async with self._session.get(
                self.url + path, params={"after": after}, headers=self._headers, timeout=FOLLOW_TIMEOUT
            ) as answer:
                if answer.status >= 400:
                    raise WorkerStartError(await self._complaint("GET", path, answer), status=answer.status)
                while head := await answer.content.read(1):
                    if length := int.from_bytes(head + await answer.content.readexactly(3), "big"):
                        yield await answer.content.readexactly(length)
        except (TimeoutError, aiohttp.ClientError, asyncio.IncompleteReadError, ConnectionError) as exc:
            raise WorkerStartError(f"worker {self.name} broke off its record of run {run}: {exc}") from exc

    async def _request(self, method: str, path: str, *, missing_ok: bool = False, **options: Any) -> Any:
        try:
            async with self._session.request(
                method, self.url + path, headers=self._headers, timeout=REQUEST_TIMEOUT, **options
            ) as answer:
                if missing_ok and answer.status == 404:
                    return None
                if answer.status >= 400:
                    raise WorkerStartError(await self._complaint(method, path, answer), status=answer.status)
                return await answer.json() if answer.content_type == "application/json" else None
        except (TimeoutError, aiohttp.ClientError) as exc:
            reason = str(exc) or "no answer within 30 s"
            raise WorkerStartError(f"worker {self.name} cannot be reached ({method} {path}): {reason}") from exc

    async def _complaint(self, method: str, path: str, answer: aiohttp.ClientResponse) -> str:
        reason = (await answer.text())[:300]
        return f"worker {self.name} refused {method} {path} with {answer.status}: {reason}"


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What a cluster asks of each of its workers; `workers` is how many it will have, `together` how many start now.

    With `wait` they queue while no GPU is free, and are served together, as they are in a queue of Kubernetes'.
    """

    cluster: str
    profile: str | None = None
    ranks: int | None = None
    workers: int | None = None
    wait: bool = False
    together: int = 1
    backend: str | None = None
    """What the cluster was asked to use; the workers keep it for whoever attaches them."""

    def user_options(self) -> dict[str, Any]:
        """Return the options as the hub's spawner takes them."""
        options: dict[str, Any] = {"role": "worker", "cluster": self.cluster}
        if self.profile is not None:
            options["profile"] = self.profile
        if self.ranks is not None:
            options["ranks"] = self.ranks
        if self.workers is not None:
            options["workers"] = self.workers
        if self.backend is not None:
            options["backend"] = self.backend
        if self.wait:
            options["wait"] = True
        if self.wait or self.together > 1:
            options["together"] = self.together
        return options


class WorkerSource(ABC):
    """Where workers come from; a hub, or the user's own machine."""

    @abstractmethod
    async def start(
        self, names: Sequence[str], options: WorkerOptions, progress: Progress, timeout: float
    ) -> list[Worker]:
        """Start these workers, all or none, and return them in order.

        Raises:
            WorkerStartError: one failed or was too slow; the others are stopped again.
        """

    @abstractmethod
    async def find(self, cluster: str) -> list[Worker]:
        """Return the running workers of a cluster, in order; empty where there are none."""

    @abstractmethod
    async def clusters(self) -> dict[str, int]:
        """Return the running clusters and how many workers each has."""

    @abstractmethod
    async def names(self, cluster: str) -> list[str]:
        """Return the names of a cluster's workers, whatever state they are in."""

    async def gpus(self) -> dict[str, dict[str, Any]]:
        """Return for each class of GPUs ``total``, ``free``, ``held`` by user and ``waiting``; empty: nobody counts."""
        return {}

    @abstractmethod
    async def stop(self, names: Sequence[str], /) -> None:
        """Stop these workers and wait until they are gone; unknown names are fine."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections (and of what cannot outlive the driver)."""
