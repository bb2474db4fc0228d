"""The panel's routes for clusters, and the base class of all its HTTP routes.

docs/decisions/0010-one-stream-for-the-panel.md describes the complete interface.
"""

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
from farandole.driver.world.backends import check_backend
from farandole.exceptions import FarandoleError, UsageError
from farandole.reading import parse_json
from farandole.runs.writer import strict_json
from farandole.server.panel.clusters import cluster
from farandole.server.panel.pages.page import worker_log
from farandole.server.panel.panel import Panel
from farandole.server.panel.problems import STATUS, RefusedError, problem
from farandole.sizes import size_text

LONGEST_MESSAGE = 100 * 2**10
"""Maximum size of a message from a page, in bytes."""
NUMBER = re.compile(r"-?[0-9]{1,18}")
MOST_WORKERS = 1024
"""Maximum number of workers in a cluster, in addition to the hub's limits."""

T = TypeVar("T")


def requires(action: str) -> Callable[[Any], Any]:
    """Return a decorator for methods that require a logged-in user with permission for ``action`` on the panel."""
    return lambda method: web.authenticated(authorized(action=action)(method))


class PanelHandler(APIHandler):
    """Base class of the panel's HTTP routes. The response to a refused request is a ``Problem`` message."""

    auth_resource = "farandole"

    def initialize(self, panel: Panel) -> None:
        """Store the panel."""
        super().initialize()
        self.panel = panel

    def answer(self, value: Mapping[str, Any], status: int = 200) -> None:
        """Send a JSON response without spaces, which take a tenth of the table of runs."""
        self.set_status(status)
        self.finish(strict_json(value, separators=(",", ":")))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Respond with the reason why the request was refused."""
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, FarandoleError):
            refusal = problem(error)
            self.answer(refusal, STATUS.get(refusal["code"], 409))
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log unexpected errors only. The page receives the reasons for refused requests, so they are not logged."""
        if not isinstance(value, FarandoleError):
            super().log_exception(typ, value, tb)

    def body(self) -> dict[str, Any]:
        """Return the JSON object in the request's body; raise UsageError if the body is too large or invalid."""
        if len(self.request.body) > LONGEST_MESSAGE:
            raise UsageError(f"the body must be a JSON object of at most {size_text(LONGEST_MESSAGE)}")
        try:
            return parse_json(self.request.body, "the body")
        except ValueError as exc:
            raise UsageError(f"invalid request: {exc}") from exc

    def number(self, name: str, default: int) -> int:
        """Return an integer from the query; raise UsageError if it is invalid or has more than 18 digits."""
        text = self.get_query_argument(name, str(default))
        if NUMBER.fullmatch(text) is None:
            raise UsageError(f"{name} must be a number of at most 18 digits, not {text[:100]!r}")
        return int(text)

    def answer_cluster(self, name: str) -> None:
        """Respond with the current state of a cluster."""
        self.answer(cluster(self.panel.monitor.snapshot, name, self.panel.index.notebook), 202)


class StateHandler(PanelHandler):
    """``GET state`` returns the complete state."""

    @requires("read")
    async def get(self) -> None:
        """Respond with the complete state; see `Panel.state`."""
        async with self.panel.used():
            self.answer(await self.panel.state())


class ClustersHandler(PanelHandler):
    """``POST clusters`` starts a cluster."""

    @requires("write")
    async def post(self) -> None:
        """Start a cluster. The response reports early errors, and the stream reports later errors."""
        options, workers = start_options(self.body())
        async with self.panel.used():
            await self.panel.actions.start(options, workers)
            self.answer_cluster(options.cluster)


class ClusterHandler(PanelHandler):
    """``PATCH clusters/NAME`` scales a cluster, and ``DELETE clusters/NAME`` stops it."""

    @requires("write")
    async def patch(self, name: str) -> None:
        """Scale the cluster to the number of workers in the body."""
        workers = typed(self.body(), "workers", int)
        if workers < 1:
            raise UsageError(f"a cluster needs at least 1 worker, not {workers}; stop it instead")
        _check_size(workers)
        async with self.panel.used():
            await self.panel.actions.scale(name, workers)
            self.answer_cluster(name)

    @requires("write")
    async def delete(self, name: str) -> None:
        """Stop the cluster, or delete the error of a failed start."""
        async with self.panel.used():
            if await self.panel.actions.stop(name, stop_runs=bool(self.number("stop_runs", 0))):
                self.answer_cluster(name)
            else:
                self.set_status(204)
                self.finish()
            self.panel.publish()


class WorkerLogHandler(PanelHandler):
    """``GET clusters/NAME/workers/WORKER/log`` returns a chunk of the log of a worker's server."""

    @requires("read")
    async def get(self, name: str, worker: str) -> None:
        """Respond with the chunk that starts at the query's offset."""
        async with self.panel.used():
            if worker not in self.panel.monitor.snapshot.members(name):
                raise RefusedError("unknown", f"cluster {name!r} has no worker {worker!r}")
            self.answer(await worker_log(self.panel, worker, self.number("offset", 0)))


def start_options(body: Mapping[str, Any]) -> tuple[WorkerOptions, int]:
    """Return the options and the number of workers in a ``StartCluster`` message; raise UsageError if it is invalid."""
    name, workers = typed(body, "name", str), typed(body, "workers", int)
    ranks, backend = _maybe(body, "ranks", int), _maybe(body, "backend", str)
    if not CLUSTER_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a cluster's name; use 1 to 24 lower-case letters, digits and inner hyphens"
        )
    for what, count in (("workers", workers), ("ranks", 1 if ranks is None else ranks)):
        if count < 1:
            raise UsageError(f"the number of {what} must be at least 1, not {count}")
    if backend is not None:
        check_backend(backend)
    _check_size(workers)
    wait, profile = typed(body, "wait", bool), _maybe(body, "profile", str)
    return WorkerOptions(cluster=name, profile=profile, ranks=ranks, wait=wait, backend=backend), workers


def _check_size(workers: int) -> None:
    """Raise UsageError if a cluster would have too many workers."""
    if workers > MOST_WORKERS:
        raise UsageError(f"a cluster may have at most {MOST_WORKERS:,} workers, not {workers:,}")


def typed(body: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """Return a value from a request's body; raise UsageError if the value has another type."""
    value = body.get(key)
    if type(value) is not kind:
        raise UsageError(f"{key} must be of type {kind.__name__}, not {reprlib.repr(value)}")
    return value


def _maybe(body: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    return None if body.get(key) is None else typed(body, key, kind)
