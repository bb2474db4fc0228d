"""What a worker's server answers to its driver, all of it behind the server's own login."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.iostream import StreamClosedError

from farandole.protocol import RECORD_SIGN_SECONDS
from farandole.server.activity import idle_seconds
from farandole.server.journal.journal import Journal
from farandole.server.worker.logbook import LogBook
from farandole.server.worker.ranks import RankKernelManager
from farandole.server.worker.rendezvous import Rendezvous
from farandole.server.worker.usage import UsageMeter

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

NO_FRAME = bytes(4)
"""The length of nothing, as a sign of life."""


def node_id() -> str:
    """Return a name for what shares loopback with this process: one boot of a machine and one network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/net")
    if not boot.exists():
        return socket.gethostname()
    return f"{boot.read_text().strip()}/{namespace.stat().st_ino}"


def address() -> str:
    """Return the address that this host's own name resolves to, empty where it resolves to nothing."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return ""


def backends() -> list[str]:
    """Return the backends that a rank started here can use, the default first; found without importing them."""
    found = [name for name in ("horovod", "torch") if importlib.util.find_spec(name) is not None]
    return [*found, "none"] if "torch" in found else ["none"]


def describe(manager: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the worker's name, ranks, profile, host, address, node, backends, how long it is idle and may be."""
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
    """``GET farandole/worker``: where this worker is and what it offers."""

    @web.authenticated
    def get(self) -> None:
        """Write what the worker says of itself."""
        self.finish(describe(self.kernel_manager, self.settings))


class LookHandler(APIHandler):
    """``GET farandole/look``: how this worker is now."""

    def initialize(self, meter: UsageMeter) -> None:
        """Take the one meter of this server."""
        super().initialize()
        self.meter = meter

    @web.authenticated
    async def get(self) -> None:
        """Write what the worker says of itself, what it uses, and which runs go on here."""
        manager = _ranks_of(self)
        self.finish(
            {
                "info": describe(manager, self.settings),
                "usage": await self.meter.sample(),
                "runs": manager.records.going,
            }
        )


class LogHandler(APIHandler):
    """``GET farandole/log?offset=N``: what this server has logged."""

    def initialize(self, book: LogBook) -> None:
        """Take the one book of this server."""
        super().initialize()
        self.book = book

    @web.authenticated
    def get(self) -> None:
        """Write a part of the log, from byte N on."""
        try:
            offset = int(self.get_query_argument("offset", "0"))
        except ValueError as exc:
            raise web.HTTPError(400, "offset must be a number of bytes") from exc
        self.finish(self.book.part(offset))


class RendezvousHandler(APIHandler):
    """``POST farandole/rendezvous``: open Horovod's rendezvous for a world."""

    def initialize(self, rendezvous: Rendezvous) -> None:
        """Take the one rendezvous of this server."""
        super().initialize()
        self.rendezvous = rendezvous

    @web.authenticated
    async def post(self) -> None:
        """Write the port; the body is ``{"slots": [...], "host": the address to listen on, or ""}``."""
        try:
            body = json.loads(self.request.body)
            slots: list[dict[str, Any]] = body["slots"]
            host = str(body["host"])
        except (ValueError, KeyError, TypeError) as exc:
            raise web.HTTPError(400, 'the body must be {"slots": [...], "host": ""}') from exc
        port = await asyncio.to_thread(self.rendezvous.open, slots, host)
        self.finish({"port": port})


def _ranks_of(handler: APIHandler) -> RankKernelManager:
    manager = handler.kernel_manager
    assert isinstance(manager, RankKernelManager)
    return manager


class RecordsHandler(APIHandler):
    """``GET farandole/records``: what this worker knows of runs."""

    @web.authenticated
    def get(self) -> None:
        """Write the ids of the kernels that live and the records that there are, the code of their runs included."""
        manager = _ranks_of(self)
        self.finish({"kernels": manager.list_kernel_ids(), "records": manager.records.listing()})


class RecordHandler(APIHandler):
    """``GET farandole/records/<run>/<kernel>?after=N``: what a rank said in a run."""

    _record: Journal | None = None
    _left = False

    @web.authenticated
    async def get(self, run: str, kernel_id: str) -> None:
        """Write the messages from number N + 1 on as they come, each after its length (4 bytes), until the end.

        A length of 0 with nothing after it is a sign of life.
        """
        self._record = record = _ranks_of(self).records.get(run, kernel_id)
        if record is None:
            raise web.HTTPError(404, f"run {run} is not on record for kernel {kernel_id}")
        try:
            with record.followed():
                await self._follow(record, int(self.get_query_argument("after", "0")))
        except StreamClosedError:
            self.log.debug("a driver has stopped reading run %s", run)

    async def _follow(self, record: Journal, after: int) -> None:
        self.set_header("Content-Type", "application/octet-stream")
        await self.flush()
        while not self._left:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECORD_SIGN_SECONDS):
                    await record.wait(after)
            frames, after = record.read(after)
            self.write(frames or NO_FRAME)
            await self.flush()
            if record.ended and after >= record.count:
                _ranks_of(self).note_read(record)
                return

    def on_connection_close(self) -> None:
        """Stop to wait for more."""
        super().on_connection_close()
        self._left = True
        if self._record is not None:
            self._record.wake()


def add_routes(serverapp: ServerApp) -> None:
    """Add Farandole's routes to a Jupyter server."""
    base = url_path_join(serverapp.base_url, "farandole")
    book = LogBook()
    serverapp.log.addHandler(book)
    serverapp.web_app.add_handlers(
        ".*$",
        [
            (url_path_join(base, "worker"), WorkerHandler),
            (url_path_join(base, "look"), LookHandler, {"meter": UsageMeter()}),
            (url_path_join(base, "log"), LogHandler, {"book": book}),
            (url_path_join(base, "rendezvous"), RendezvousHandler, {"rendezvous": Rendezvous()}),
            (url_path_join(base, "records"), RecordsHandler),
            (url_path_join(base, "records", r"([^/]+)/([^/]+)"), RecordHandler),
        ],
    )
