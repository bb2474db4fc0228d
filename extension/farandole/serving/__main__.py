"""``python -m farandole.serving iris:3``: serve a version of a model. The hub starts this as a server of its user."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
import uvloop
from jupyterhub.services.auth import HubAuth

from farandole.exceptions import FarandoleError, ModelNotFoundError
from farandole.models.model import ModelInfo
from farandole.models.store import ModelStore
from farandole.serving import CACHE_SECONDS
from farandole.serving.activity import report_activity
from farandole.serving.app import MANAGEMENT, create_app
from farandole.serving.bodies import BodyLimit, JsonBodies
from farandole.serving.endpoint import EndpointModel
from farandole.serving.login import HubLogin
from farandole.serving.prefix import Prefix
from farandole.serving.runtimes import load
from farandole.serving.statistics import Counted, Statistics

if TYPE_CHECKING:
    from farandole.serving.streams.start import Stream

GRACE_SECONDS = 5
"""Seconds that requests have to end after the server was told to stop."""
BEGIN_SECONDS = 10
"""Seconds that the stream may take to begin before requests are answered."""


def main() -> None:
    """Load the model, then listen at the address that the hub has chosen, until a signal ends this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="the model to serve, such as iris:3 (default: the only one)")
    parser.add_argument("--no-login", action="store_true", help="answer all requests, on a cluster that checks them")
    parser.add_argument("--from", dest="source", help="also score the records of this stream")
    parser.add_argument("--to", dest="target", help="the stream of the scored records")
    parser.add_argument("--credentials", default="", help="a file with the login to the broker of the streams")
    options, store = parser.parse_args(), ModelStore()
    try:
        model = EndpointModel(load(store.find(options.model) if options.model else only(store)))
        uvloop.run(serve(model, store, options))
    except FarandoleError as exc:
        sys.exit(f"{type(exc).__name__}: {exc}")


def only(store: ModelStore) -> ModelInfo:
    """Return the only version in a store. Raises ModelNotFoundError if there is none, or more than one."""
    found = store.list()
    if len(found) != 1:
        raise ModelNotFoundError(f"there are {len(found)} versions in {store.folder}; name the one to serve.")
    return found[0]


async def serve(model: EndpointModel, store: ModelStore, options: argparse.Namespace) -> None:
    """Answer requests, and score records, until a signal ends this process.

    Raises FarandoleError if the model cannot score records, and the error of the consumer if that ends.
    """
    place = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    statistics = Statistics()
    stream = _stream(model, options, statistics) if options.source else None
    app = create_app(model, store, lambda: {**statistics.recent(), "stream": stream.status() if stream else None})
    counted = Counted(BodyLimit(JsonBodies(app)), statistics)
    config = uvicorn.Config(
        Prefix(counted if options.no_login else _with_login(counted), place.path),
        host=place.hostname or "127.0.0.1",
        port=place.port or 80,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    work = [report_activity(os.environ, lambda: statistics.last_request), *([stream.run()] if stream else [])]
    server = _Server(config, work)
    if stream:
        with suppress(TimeoutError):
            # Users may send records as soon as the endpoint answers, so the streams must exist then.
            await asyncio.wait_for(stream.begun(), BEGIN_SECONDS)
    await server.serve()
    if server.failure:
        raise server.failure


class _Server(uvicorn.Server):
    """A server that does other work beside it. It cancels the work when it stops, and stops if the work fails.

    `serve` returns only after a failure: to end this process, uvicorn raises the signal again that has stopped it.
    """

    failure: BaseException | None = None

    def __init__(self, config: uvicorn.Config, work: Sequence[Coroutine[Any, Any, None]]) -> None:
        super().__init__(config)
        self._tasks = [asyncio.create_task(one) for one in work]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that are open, and end the work meanwhile, so that it leaves its broker."""
        for task in self._tasks:
            task.cancel()
        await super().shutdown(sockets)
        await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()):
            self.failure, self.should_exit = failure, True


def _stream(model: EndpointModel, options: argparse.Namespace, statistics: Statistics) -> Stream:
    # Endpoints without a stream need no clients of brokers.
    from farandole.serving.streams.start import stream_of

    stream = stream_of(options.source, options.target, options.credentials, model.batcher, statistics.use)
    model.check = stream.check
    return stream


def _with_login(app: Counted) -> HubLogin:
    own = f"{os.environ['JUPYTERHUB_USER']}/{os.environ['JUPYTERHUB_SERVER_NAME']}"
    auth = HubAuth(cache_max_age=CACHE_SECONDS)
    owners = {f"servers!server={own}", f"servers!user={os.environ['JUPYTERHUB_USER']}"}
    return HubLogin(
        app,
        auth,
        callers=set(json.loads(os.environ["JUPYTERHUB_OAUTH_ACCESS_SCOPES"])),
        owners=owners,
        management=MANAGEMENT,
    )


if __name__ == "__main__":
    main()
