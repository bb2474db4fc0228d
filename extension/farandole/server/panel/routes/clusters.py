"""The panel's routes for clusters; docs/decisions/0010-one-stream-for-the-panel.md describes the whole interface."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from farandole.driver.cluster import CLUSTER_NAME
from farandole.driver.workers.worker import WorkerOptions
from farandole.driver.world.backends import BACKENDS
from farandole.exceptions import FarandoleError, UsageError
from farandole.reading import parse_json
from farandole.runs.writer import strict_json
from farandole.server.panel.clusters import cluster
from farandole.server.panel.page import worker_log
from farandole.server.panel.panel import Panel
from farandole.server.panel.problems import STATUS, RefusedError, problem

LONGEST_MESSAGE = 100_000
"""Limit for a message from a page, in bytes."""
NUMBER = re.compile(r"-?[0-9]{1,18}")
MOST_WORKERS = 1024
"""Limit for one cluster, independent of the hub's limits."""

T = TypeVar("T")


def requires(action: str) -> Callable[[Any], Any]:
    """Return a decorator for methods that need a login and a user who may do ``action`` with the panel."""
    return lambda method: web.authenticated(authorized(action=action)(method))


class PanelHandler(APIHandler):
    """Base of all routes: writes JSON, and a ``Problem`` for each refused request."""

    auth_resource = "farandole"

    def initialize(self, panel: Panel) -> None:
        """Set the panel."""
        super().initialize()
        self.panel = panel

    def answer(self, value: Mapping[str, Any], status: int = 200) -> None:
        """Write a JSON answer."""
        self.set_status(status)
        self.finish(strict_json(value))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write why the request was refused."""
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, FarandoleError):
            refusal = problem(error)
            self.answer(refusal, STATUS.get(refusal["code"], 409))
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log only unexpected errors with a traceback; refused requests are reported to the page."""
        if not isinstance(value, FarandoleError):
            super().log_exception(typ, value, tb)

    def body(self) -> dict[str, Any]:
        """Return the request's body, a JSON object; raise UsageError if it is not one."""
        if len(self.request.body) > LONGEST_MESSAGE:
            raise UsageError(f"the body must be a JSON object of at most {LONGEST_MESSAGE / 1e3:g} kB")
        try:
            return parse_json(self.request.body, "the body")
        except ValueError as exc:
            raise UsageError(f"the body must be a JSON object: {exc}") from exc

    def number(self, name: str, default: int) -> int:
        """Return an integer from the query; raise UsageError if it is not one that a file's size can be."""
        text = self.get_query_argument(name, str(default))
        if NUMBER.fullmatch(text) is None:
            raise UsageError(f"{name} must be a number of at most 18 digits, not {text[:100]!r}")
        return int(text)

    def answer_cluster(self, name: str) -> None:
        """Write the current state of a cluster."""
        self.answer(cluster(self.panel.monitor.snapshot, name, self.panel.index.notebook), 202)


class StateHandler(PanelHandler):
    """``GET state``."""

    @requires("read")
    async def get(self) -> None:
        """Write the initial state of a page."""
        async with self.panel.used():
            self.answer(await self.panel.state())


class ClustersHandler(PanelHandler):
    """``POST clusters``."""

    @requires("write")
    async def post(self) -> None:
        """Start a cluster. Early errors are in the answer, later ones in the stream."""
        options, workers = start_options(self.body())
        async with self.panel.used():
            await self.panel.actions.start(options, workers)
            self.answer_cluster(options.cluster)


class ClusterHandler(PanelHandler):
    """``PATCH`` and ``DELETE clusters/NAME``."""

    @requires("write")
    async def patch(self, name: str) -> None:
        """Scale a cluster."""
        workers = _typed(self.body(), "workers", int)
        if workers < 1:
            raise UsageError(f"a cluster needs at least 1 worker, not {workers}; stop it instead")
        _check_size(workers)
        async with self.panel.used():
            await self.panel.actions.scale(name, workers)
            self.answer_cluster(name)

    @requires("write")
    async def delete(self, name: str) -> None:
        """Stop a cluster, or dismiss a failed start."""
        async with self.panel.used():
            if await self.panel.actions.stop(name, stop_runs=bool(self.number("stop_runs", 0))):
                self.answer_cluster(name)
            else:
                self.set_status(204)
                self.finish()
            self.panel.publish()


class WorkerLogHandler(PanelHandler):
    """``GET clusters/NAME/workers/WORKER/log``."""

    @requires("read")
    async def get(self, name: str, worker: str) -> None:
        """Write a chunk of the log of a worker's server."""
        async with self.panel.used():
            if worker not in self.panel.monitor.snapshot.members(name):
                raise RefusedError("unknown", f"cluster {name!r} has no worker {worker!r}")
            self.answer(await worker_log(self.panel, worker, self.number("offset", 0)))


def start_options(body: Mapping[str, Any]) -> tuple[WorkerOptions, int]:
    """Return the options and the number of workers of a ``StartCluster`` message; raise UsageError if it is invalid."""
    name, workers = _typed(body, "name", str), _typed(body, "workers", int)
    ranks, backend = _maybe(body, "ranks", int), _maybe(body, "backend", str)
    if not CLUSTER_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a cluster's name; use 1 to 24 lower-case letters, digits and inner hyphens"
        )
    for what, count in (("workers", workers), ("ranks", 1 if ranks is None else ranks)):
        if count < 1:
            raise UsageError(f"the number of {what} must be at least 1, not {count}")
    if backend is not None and backend not in BACKENDS:
        raise UsageError(f"there is no backend {backend!r}; choose one of {', '.join(BACKENDS)}")
    _check_size(workers)
    wait, profile = _typed(body, "wait", bool), _maybe(body, "profile", str)
    return WorkerOptions(cluster=name, profile=profile, ranks=ranks, wait=wait, backend=backend), workers


def _check_size(workers: int) -> None:
    """Raise UsageError if a cluster would have too many workers."""
    if workers > MOST_WORKERS:
        raise UsageError(f"a cluster may have at most {MOST_WORKERS:,} workers, not {workers:,}")


def _typed(body: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """Return a value of a request's body; raise UsageError if it has another type."""
    value = body.get(key)
    if type(value) is not kind:
        raise UsageError(f"{key} must be of type {kind.__name__}, not {reprlib.repr(value)}")
    return value


def _maybe(body: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    return None if body.get(key) is None else _typed(body, key, kind)
