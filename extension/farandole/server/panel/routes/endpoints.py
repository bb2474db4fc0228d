"""The panel's routes for endpoints."""

from __future__ import annotations

import asyncio
import json
import time

from farandole.driver.endpoints.client import EndpointClient
from farandole.exceptions import NoClusterError, UsageError
from farandole.models.model import EXAMPLE_FILE
from farandole.models.store import ModelStore
from farandole.reading import parse_json, read_json, reason
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.routes.clusters import PanelHandler, requires, typed
from farandole.server.panel.wire_hub import Endpoint


class EndpointHandler(PanelHandler):
    """``DELETE endpoints/NAME`` stops an endpoint."""

    @requires("write")
    async def delete(self, name: str) -> None:
        """Stop the endpoint, and wait for its end."""
        async with self.panel.used():
            await self.client().stop(name)
            await self.panel.monitor.refresh()
        self.set_status(204)
        self.finish()

    def client(self) -> EndpointClient:
        """Return a client for the endpoints. Raises NoClusterError if there is no hub."""
        workers = self.panel.monitor.workers
        if workers is None:
            raise NoClusterError("there is no hub here, so there are no endpoints")
        return EndpointClient(workers.client)

    def endpoint(self, name: str) -> Endpoint:
        """Return an endpoint that serves a model. Raises RefusedError if there is none with this name."""
        for one in self.panel.monitor.endpoints:
            if one["name"] == name and one["model"]:
                return one
        raise RefusedError("unknown", f"there is no endpoint {name!r} that serves a model")


class ExampleHandler(EndpointHandler):
    """``GET endpoints/NAME/example`` returns a request that the endpoint's model accepts."""

    @requires("read")
    async def get(self, name: str) -> None:
        """Respond with the example that was saved with the model."""
        async with self.panel.used():
            one = self.endpoint(name)
            info = await asyncio.to_thread(ModelStore().find, f"{one['model']}:{one['version']}")
            try:
                example = await asyncio.to_thread(read_json, info.folder, EXAMPLE_FILE)
            except (OSError, ValueError) as exc:
                raise UsageError(f"the example of {info} cannot be read: {reason(exc)}") from exc
            self.answer({"request": json.dumps(example, indent=1)})


class InferHandler(EndpointHandler):
    """``POST endpoints/NAME/infer`` sends a request to the endpoint."""

    @requires("execute")
    async def post(self, name: str) -> None:
        """Respond with the answer of the endpoint."""
        try:
            request = parse_json(typed(self.body(), "request", str), "the request")
        except ValueError as exc:
            raise UsageError(str(exc)) from exc
        async with self.panel.used():
            one, begun = self.endpoint(name), time.perf_counter()
            found = await self.client().infer(name, str(one["model"]).rpartition("/")[2], request)
            self.answer({"answer": json.dumps(found, indent=1), "seconds": time.perf_counter() - begun})
