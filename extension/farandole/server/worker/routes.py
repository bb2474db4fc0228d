"""HTTP routes of a worker's server for drivers, panels and browsers. All routes require the server's authentication."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import socket
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.iostream import StreamClosedError

from farandole.protocol import RECORD_SIGN_SECONDS
from farandole.quotas.admission import current_use
from farandole.reading import parse_json
from farandole.server.activity import idle_seconds
from farandole.server.journal.journal import Journal
from farandole.server.worker.logbook import LogBook
from farandole.server.worker.page import PageHandler
from farandole.server.worker.ranks import RankKernelManager
from farandole.server.worker.rendezvous import Rendezvous, are_slots
from farandole.server.worker.usage import UsageMeter

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

HOME_SECONDS = 20.0
"""How long the home may be measured for a request. Drivers wait 30 s for an answer."""
NO_FRAME = bytes(4)
"""The length field of an empty frame, which is sent to keep a connection alive."""


def node_id() -> str:
    """Return an id that is the same for all processes that can connect to each other over the loopback interface.

    The id consists of the machine's boot id and the network namespace. Without a boot id, it is the host name.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/net")
    if not boot.exists():
        return socket.gethostname()
    return f"{boot.read_text().strip()}/{namespace.stat().st_ino}"


def address() -> str:
    """Return the address that this machine's host name resolves to, or an empty string if it does not resolve."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return ""


def backends() -> list[str]:
    """Return the backends that are installed for the ranks of this worker, without importing them.

    The first backend is the default.
    """
    found = [name for name in ("horovod", "torch") if importlib.util.find_spec(name) is not None]
    return [*found, "none"] if "torch" in found else ["none"]


def describe(manager: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a description of this worker: its name, ranks, profile, network location, backends and idle time."""
    return {
        "worker": os.environ.get("FARANDOLE_WORKER", "local"),
        "ranks": int(os.environ.get("FARANDOLE_RANKS", "1")),
        "profile": os.environ.get("FARANDOLE_PROFILE", ""),
        "backend": os.environ.get("FARANDOLE_CLUSTER_BACKEND", ""),
        "host": socket.gethostname(),
        "address": address(),
        "node": node_id(),
        "backends": backends(),
        "idle_minutes": float(os.environ.get("FARANDOLE_IDLE_MINUTES", "0")),
        "idle_seconds": idle_seconds(manager, settings),
    }


class WorkerHandler(APIHandler):
    """``GET farandole/worker`` returns the worker's description."""

    @web.authenticated
    def get(self) -> None:
        """Respond with the description; see `describe`."""
        self.finish(describe(self.kernel_manager, self.settings))


class StatusHandler(APIHandler):
    """``GET farandole/look`` returns the worker's current status."""

    def initialize(self, meter: UsageMeter) -> None:
        """Store the usage meter."""
        super().initialize()
        self.meter = meter

    @web.authenticated
    async def get(self) -> None:
        """Respond with the worker's description, its resource usage and the ids of its active runs."""
        info = describe(self.kernel_manager, self.settings)
        self.finish({"info": info, "usage": await self.meter.sample(), "runs": _manager(self).journals.active_runs})


class HomeHandler(APIHandler):
    """``GET farandole/home`` returns the use of the user's home for a run that begins, see `HomeUse`."""

    @web.authenticated
    async def get(self) -> None:
        """Respond with the use, or with an empty object if the hub sets no limit."""
        use = await asyncio.to_thread(current_use, wait=HOME_SECONDS)
        self.finish({} if use is None else asdict(use))


class LogHandler(APIHandler):
    """``GET farandole/log?offset=N`` returns a chunk of the server's log."""

    def initialize(self, book: LogBook) -> None:
        """Store the log book."""
        super().initialize()
        self.book = book

    @web.authenticated
    def get(self) -> None:
        """Respond with the chunk of the log that starts at byte N; see `LogBook.read`."""
        self.finish(self.book.read(_number(self, "offset")))


class RendezvousHandler(APIHandler):
    """``POST farandole/rendezvous`` starts Horovod's rendezvous server for a world."""

    def initialize(self, rendezvous: Rendezvous) -> None:
        """Store the manager of the rendezvous server."""
        super().initialize()
        self.rendezvous = rendezvous

    @web.authenticated
    async def post(self) -> None:
        """Start the server for a body ``{"slots": [...], "host": "..."}`` and respond with its port.

        `Rendezvous.open` describes the two fields.
        """
        try:
            body = parse_json(self.request.body, "the body")
        except ValueError as exc:
            raise web.HTTPError(400, str(exc)) from exc
        slots, host = body.get("slots"), body.get("host")
        if not are_slots(slots) or not isinstance(host, str):
            raise web.HTTPError(400, 'the body must be {"slots": [...], "host": ""}')
        try:
            port = await asyncio.to_thread(self.rendezvous.open, slots, host)
        except (OSError, UnicodeError) as exc:
            raise web.HTTPError(400, f"this worker cannot listen at {host[:100]!r}") from exc
        self.finish({"port": port})


def _number(handler: APIHandler, name: str) -> int:
    text = handler.get_query_argument(name, "0")
    if re.fullmatch(r"-?[0-9]{1,18}", text) is None:
        raise web.HTTPError(400, f"{name} must be a number of at most 18 digits")
    return int(text)


def _manager(handler: APIHandler) -> RankKernelManager:
    manager = handler.kernel_manager
    assert isinstance(manager, RankKernelManager)
    return manager


class JournalsHandler(APIHandler):
    """``GET farandole/records`` returns the kernels and journals of this worker."""

    @web.authenticated
    def get(self) -> None:
        """Respond with the ids of the running kernels and the descriptions of all journals."""
        manager = _manager(self)
        self.finish({"kernels": manager.list_kernel_ids(), "records": manager.journals.describe()})


class JournalHandler(APIHandler):
    """``GET farandole/records/<run>/<kernel>?after=N`` returns the messages that a rank sent during a run."""

    _journal: Journal | None = None
    _closed = False

    @web.authenticated
    async def get(self, run: str, kernel_id: str) -> None:
        """Stream the messages after number N until the journal ends.

        Each message is preceded by its length in 4 bytes. A length of 0 without a message keeps the connection alive.
        A request for the messages after the last one of an ended run confirms that the driver has received them all.
        """
        after = max(0, _number(self, "after"))
        self._journal = journal = _manager(self).journals.get(run, kernel_id)
        if journal is None:
            raise web.HTTPError(404, f"there is no journal of run {run} for kernel {kernel_id}")
        try:
            with journal.reading():
                await self._stream(journal, after)
        except StreamClosedError:
            self.log.debug("a driver has stopped reading run %s", run)

    async def _stream(self, journal: Journal, after: int) -> None:
        self.set_header("Content-Type", "application/octet-stream")
        await self.flush()
        if journal.ended and after >= journal.count:
            _manager(self).note_read(journal)
        while not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECORD_SIGN_SECONDS):
                    await journal.wait(after)
            frames, after = journal.read(after)
            self.write(frames or NO_FRAME)
            await self.flush()
            if journal.ended and after >= journal.count:
                return

    def on_connection_close(self) -> None:
        """Stop streaming when the client has disconnected."""
        super().on_connection_close()
        self._closed = True
        if self._journal is not None:
            self._journal.wake()


def add_routes(serverapp: ServerApp) -> None:
    """Add Farandole's routes to a worker's Jupyter server, and collect the server's log for them."""
    base = url_path_join(serverapp.base_url, "farandole")
    book = LogBook()
    serverapp.log.addHandler(book)
    serverapp.web_app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "page"), PageHandler),
            (url_path_join(base, "worker"), WorkerHandler),
            (url_path_join(base, "look"), StatusHandler, {"meter": UsageMeter()}),
            (url_path_join(base, "home"), HomeHandler),
            (url_path_join(base, "log"), LogHandler, {"book": book}),
            (url_path_join(base, "rendezvous"), RendezvousHandler, {"rendezvous": Rendezvous()}),
            (url_path_join(base, "records"), JournalsHandler),
            (url_path_join(base, "records", r"([^/]+)/([^/]+)"), JournalHandler),
        ],
    )
