"""A worker, which is a Jupyter server that runs ranks."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp

from farandole.driver.workers.addresses import Address
from farandole.driver.workers.journal import WorkerJournal
from farandole.driver.workers.refusals import refusal, silent_worker
from farandole.exceptions import NoClusterError, PermissionDeniedError, WorkerStartError
from farandole.protocol import RECORD_SIGN_SECONDS
from farandole.suggestions import did_you_mean

Progress: TypeAlias = Callable[[str], None]
"""A callback that shows one line of text to the user, such as the progress of a start."""
HEARTBEAT_SECONDS = 20.0
"""The interval of websocket pings in seconds. A host that loses power does not close its connections."""
OPEN_SECONDS = 15.0
"""How many seconds opening a websocket may take. A hung server, or the proxy in front of one, may never answer."""
START_SECONDS = 120.0
"""How many seconds opening the first websocket to a kernel may take. The server answers only after the kernel has
started, which can take a minute if many kernels start on the same machine."""
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30)
FOLLOW_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=3 * RECORD_SIGN_SECONDS)
"""The timeout for reading a journal. A rank may be silent for hours, but the worker sends keep-alives in the meantime.
Without this timeout, a proxy could keep the connection to a killed worker open forever."""
LOST_SECONDS = 120.0
"""How many seconds a driver tries to reach a worker that may still exist, for example while the hub or the proxy
restarts."""
REFUSED_SECONDS = 3.0
"""How many seconds a proxy may refuse connections to a worker that the hub still lists before the worker is treated as
lost. The hub polls its servers rarely, so it may be late to notice that a worker has ended."""
PROBE_SECONDS = 5.0
LONGEST_PROBE_PAUSE = 2.0
GONE = "lost: its worker ended or cannot be reached"

Presence: TypeAlias = Callable[[], Awaitable[bool | None]]
"""A coroutine function that returns whether the source of a worker still lists it, or None if the source does not
answer. It raises PermissionDeniedError if the source refuses to say so."""


async def _gone() -> bool | None:
    return False


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """The worker's description of itself (``GET farandole/worker``).

    - ``idle_minutes`` is the time after which the hub stops an idle worker; 0 means never.
    - ``idle_seconds`` is how long the worker had been idle when it answered; None means that a rank is busy.
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
    """The backend with which the cluster was started, or an empty string for the default."""

    @property
    def machine(self) -> str:
        """The boot id of the machine on which the node runs; see `farandole.server.worker.routes.node_id`."""
        return self.node.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class WorkerLook:
    """A worker's current state (``GET farandole/look``).

    - ``usage`` has the fields of ``Usage`` in `farandole.server.panel.wire`.
    - ``runs`` contains the ids of the worker's active runs.
    """

    info: WorkerInfo
    usage: dict[str, Any]
    runs: tuple[str, ...]


class Worker:
    """A Jupyter server at `url`, which ends with a slash. Requests use `token` and the given client session.

    ``host`` is the Host header of requests if it differs from the host in the URL; see `Address`.
    """

    def __init__(
        self,
        *,
        name: str,
        url: str,
        token: str,
        session: aiohttp.ClientSession,
        host: str = "",
        presence: Presence | None = None,
    ) -> None:
        self.name = name
        self.url = url
        self.presence = presence or _gone
        """Returns whether the worker still exists. By default, a worker that does not answer is treated as gone."""
        self.silent_since: float | None = None
        """Since when neither the worker nor its source has answered, in seconds since the epoch, or None."""
        self._headers = {**Address(url=url, host=host).headers, "Authorization": f"token {token}"}
        self._session = session

    async def info(self) -> WorkerInfo:
        """Request the worker's description of itself."""
        return self._info(await self._request("GET", "farandole/worker"))

    async def look(self) -> WorkerLook:
        """Request the worker's current state."""
        answer = await self._get("farandole/look")
        return WorkerLook(info=self._info(answer["info"]), usage=answer["usage"], runs=tuple(answer["runs"]))

    async def home(self) -> dict[str, Any]:
        """Return the use of the user's home on the worker's machine; see `farandole.quotas.home.HomeUse`."""
        return await self._get("farandole/home")

    async def log(self, offset: int) -> dict[str, Any]:
        """Return a section of the worker's server log as ``offset``, ``next``, ``size`` and ``text``."""
        return await self._get("farandole/log", params={"offset": offset})

    def _info(self, answer: dict[str, Any]) -> WorkerInfo:
        return WorkerInfo(**{**answer, "worker": self.name, "backends": tuple(answer["backends"])})

    async def open_rendezvous(self, slots: list[dict[str, Any]], *, host: str) -> int:
        """Open Horovod's rendezvous server for these slots on the worker, and return the server's port.

        The server listens on `host`, or on all interfaces if `host` is empty.
        """
        answer = await self._request("POST", "farandole/rendezvous", json={"slots": slots, "host": host})
        return int(answer["port"])

    async def start_kernel(self, slot: int) -> str:
        """Start a kernel for the given slot (0 to ranks - 1) and return the kernel's id.

        The kernel belongs to a Jupyter session whose path contains the slot, so that `kernels` can find it later.
        """
        body = {"path": f"rank-{slot}", "name": f"rank-{slot}", "type": "console", "kernel": {"name": "python3"}}
        answer = await self._request("POST", "api/sessions", json=body)
        return str(answer["kernel"]["id"])

    async def kernels(self) -> dict[int, str]:
        """Return the ids of the rank kernels that are running on the worker, indexed by slot."""
        sessions = await self._request("GET", "api/sessions")
        return {
            int(session["path"].removeprefix("rank-")): session["kernel"]["id"]
            for session in sessions
            if session["path"].startswith("rank-")
        }

    async def interrupt_kernel(self, kernel_id: str) -> None:
        """Send SIGINT to a kernel."""
        await self._request("POST", f"api/kernels/{kernel_id}/interrupt", missing_ok=True)

    async def stop_kernel(self, kernel_id: str) -> None:
        """Shut down a kernel; the server kills it if it does not exit."""
        await self._request("DELETE", f"api/kernels/{kernel_id}", missing_ok=True)

    async def kernel_socket(
        self, kernel_id: str, session_id: str, protocol: str, *, starting: bool = False
    ) -> aiohttp.ClientWebSocketResponse:
        """Open the websocket to a kernel's channels. With ``starting``, wait up to `START_SECONDS` for the kernel.

        The caller must answer pings.
        """
        url = f"{self.url}api/kernels/{kernel_id}/channels"
        seconds = START_SECONDS if starting else OPEN_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return await self._session.ws_connect(
                    url,
                    params={"session_id": session_id},
                    headers=self._headers,
                    protocols=(protocol,),
                    max_msg_size=0,
                    compress=0,
                    autoping=False,
                    heartbeat=HEARTBEAT_SECONDS,
                )
        except (TimeoutError, aiohttp.ClientError) as exc:
            error = WorkerStartError(
                f"worker {self.name} did not open a channel to its kernel, which may be starting or have ended. Try "
                "again, or see `%cluster status`."
            )
            error.add_note(str(exc) or f"no answer within {seconds:g} s")
            raise error from exc

    async def records(self) -> WorkerJournal:
        """Return the ids of the worker's live kernels, and its run journals."""
        return WorkerJournal.from_json(await self._get("farandole/records"))

    async def find_again(self) -> WorkerJournal | str:
        """Wait until the worker answers again, and return its journals or the reason to treat the worker as gone.

        A broken connection alone is not enough, because the hub or proxy may be restarting while the ranks continue.
        While nothing answers, this machine may have no network, for example a laptop that was carried elsewhere; so the
        time during which the hub is unreachable does not count.
        """
        try:
            return await self._find_again()
        except PermissionDeniedError as exc:
            return f"lost: {exc} Its worker may still run; then `%cluster attach` connects to it again"
        finally:
            self.silent_since = None

    async def _find_again(self) -> WorkerJournal | str:
        began, give_up, pause, refused = time.time(), time.monotonic() + LOST_SECONDS, 0.05, None
        while time.monotonic() < give_up:
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    return await self.records()
            except (WorkerStartError, TimeoutError) as exc:
                present = await self.present()
                if present is False:
                    return GONE
                if present is None:
                    give_up = time.monotonic() + LOST_SECONDS
                self.silent_since = began if present is None else None
                # A refusal comes from the proxy, and means that the worker's port is closed or that the proxy has no
                # route to the worker. A timeout is weaker evidence, because a busy worker can also cause one.
                refusing = present is True and isinstance(exc, WorkerStartError)
                refused = (refused or time.monotonic()) if refusing else None
                if refused is not None and time.monotonic() - refused > REFUSED_SECONDS:
                    return GONE
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PROBE_PAUSE)
        return (
            f"lost: its worker could not be reached for {LOST_SECONDS:g} s, and it may still run; once the hub "
            "answers, `%cluster attach` connects to it again"
        )

    async def present(self) -> bool | None:
        """Return whether the worker's source still lists it, or None if the source does not answer within 5 s."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await self.presence()
        except TimeoutError:
            return None

    async def follow(self, run: str, kernel_id: str, after: int) -> AsyncGenerator[bytes, None]:
        """Yield a kernel's messages in a run that have numbers above ``after``, as websocket frames.

        New messages are yielded until the journal ends, and then their receipt is confirmed to the worker. Raises
        WorkerStartError if the worker stops sending them.
        """
        path = f"farandole/records/{run}/{kernel_id}"
        try:
            async with self._session.get(
                self.url + path,
                params={"after": after},
                headers=self._headers,
                timeout=FOLLOW_TIMEOUT,
                allow_redirects=False,
            ) as answer:
                if answer.status >= 300:
                    raise await refusal(self.name, f"GET {path}", answer)
                while head := await answer.content.read(1):
                    # Each frame is preceded by its length in four bytes. A length of 0 is a keep-alive.
                    if length := int.from_bytes(head + await answer.content.readexactly(3), "big"):
                        yield await answer.content.readexactly(length)
                        after += 1
        except (TimeoutError, aiohttp.ClientError, asyncio.IncompleteReadError, ConnectionError) as exc:
            error = WorkerStartError(
                f"worker {self.name} stopped sending its journal of run {run}; it may be stopping. Try again, or see "
                "`%cluster status`."
            )
            error.add_note(f"GET {path}: {str(exc) or type(exc).__name__}")
            raise error from exc
        # The worker cannot know whether its last bytes have arrived.
        with suppress(WorkerStartError, TimeoutError):
            async with asyncio.timeout(PROBE_SECONDS):
                await self._request("GET", path, params={"after": after})

    async def _get(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object from one of the worker's routes.

        While a worker is starting or ending, the hub may answer with an HTML page instead, which raises
        `WorkerStartError`.
        """
        answer: dict[str, Any] | None = await self._request("GET", path, **options)
        if answer is None:
            raise silent_worker(self.name, f"GET {path}: the answer is not JSON")
        return answer

    async def _request(self, method: str, path: str, *, missing_ok: bool = False, **options: Any) -> Any:
        """Send a request to the worker and return the JSON response; raises `WorkerStartError` if the request fails."""
        try:
            async with self._session.request(
                method,
                self.url + path,
                headers=self._headers,
                timeout=REQUEST_TIMEOUT,
                allow_redirects=False,
                **options,
            ) as answer:
                if missing_ok and answer.status == 404:
                    return None
                # If a server is not running, the hub answers in its place and redirects to its own pages.
                if answer.status >= 300:
                    raise await refusal(self.name, f"{method} {path}", answer)
                return await answer.json() if answer.content_type == "application/json" else None
        except (TimeoutError, aiohttp.ClientError, ValueError) as exc:
            note = f"{method} {path}: {str(exc) or f'no answer within {REQUEST_TIMEOUT.total:g} s'}"
            raise silent_worker(self.name, note) from exc


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options for a cluster's workers.

    - ``workers`` is how many workers the cluster will have, and ``together`` how many of them are being started now.
    - With ``wait``, workers wait in a queue while no GPU is available. They leave the queue together, like a group of
      pods that Kubernetes admits as a whole.
    """

    cluster: str
    profile: str | None = None
    ranks: int | None = None
    workers: int | None = None
    wait: bool = False
    together: int = 1
    backend: str | None = None
    """The backend that the user requested. Workers store it for drivers that attach later."""

    def user_options(self) -> dict[str, Any]:
        """Return the options in the form that the hub's spawner expects."""
        optional = {"profile": self.profile, "ranks": self.ranks, "workers": self.workers, "backend": self.backend}
        options: dict[str, Any] = {"role": "worker", "cluster": self.cluster}
        options |= {name: value for name, value in optional.items() if value is not None}
        if self.wait:
            options["wait"] = True
        if self.wait or self.together > 1:
            options["together"] = self.together
        return options


class WorkerSource(ABC):
    """Starts, finds and stops workers, either on a hub or on the user's own machine."""

    hub: str | None = None
    """The hub's address as this process uses it, or None if there is no hub."""
    outside = False
    """Whether this process is neither on the workers' machine nor a server of their hub, such as a laptop's kernel."""

    @abstractmethod
    async def start(
        self, names: Sequence[str], options: WorkerOptions, progress: Progress, timeout: float
    ) -> list[Worker]:
        """Start these workers, either all or none of them, and return them in order.

        Raises:
            WorkerStartError: a worker failed to start or timed out, and all of these workers were stopped.
        """

    @abstractmethod
    async def find(self, cluster: str) -> list[Worker]:
        """Return the workers of a cluster that are ready, ordered by index."""

    @abstractmethod
    async def clusters(self) -> dict[str, int]:
        """Return the running clusters and how many workers each has."""

    @abstractmethod
    async def names(self, cluster: str) -> list[str]:
        """Return the names of a cluster's workers in any state."""

    async def no_cluster(self, cluster: str) -> NoClusterError:
        """Return the error for a cluster that is not running."""
        return NoClusterError(
            f"no cluster {cluster!r} is running. `%cluster list` shows the running clusters."
            f"{did_you_mean(cluster, await self.clusters())}"
        )

    async def gpus(self) -> dict[str, dict[str, Any]]:
        """Return the counts of each GPU class as ``total``, ``free``, ``held`` (by user) and ``waiting``.

        The result is empty if the source does not manage GPUs.
        """
        return {}

    @abstractmethod
    async def stop(self, names: Sequence[str], /) -> None:
        """Stop these workers, and wait until they are gone. Unknown names are ignored."""

    @abstractmethod
    async def close(self) -> None:
        """Close connections, and stop workers that cannot outlive the driver."""
