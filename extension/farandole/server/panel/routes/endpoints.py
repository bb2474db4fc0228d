"""The panel's routes for endpoints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from farandole.driver.endpoints.client import EndpointClient
from farandole.exceptions import EndpointNotFoundError, NoClusterError, UsageError
from farandole.reading import parse_json
from farandole.runs.writer import strict_json
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.routes.clusters import LONGEST_MESSAGE, PanelHandler, requires, typed
from farandole.server.panel.routes.examples import saved_example, zeros
from farandole.server.panel.wire_hub import Endpoint

MOST_SHOWN = LONGEST_MESSAGE * 4 // 5
"""Maximum length of an example or an answer that a page shows. A page can send an example of this length back."""


class _Handler(PanelHandler):
    """Base class of these routes. It has no methods for requests, which all routes would inherit."""

    def client(self) -> EndpointClient:
        """Return a client for the endpoints. Raises NoClusterError if there is no hub."""
        workers = self.panel.monitor.workers
        if workers is None:
            raise NoClusterError("there is no hub here, so there are no endpoints")
        return EndpointClient(workers.client)

    def served(self, name: str) -> Endpoint:
        """Return an endpoint that serves a model. Raises RefusedError if there is none with this name."""
        for one in self.panel.monitor.endpoints:
            if one["name"] == name and one["model"]:
                return one
        raise RefusedError("unknown", f"there is no endpoint {name!r} that serves a model")

    async def example(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the example that was saved with the model, or a request of zeros for the model of an image."""
        if endpoint["image"] is None:
            return await asyncio.to_thread(saved_example, endpoint)
        name, client = endpoint["name"], self.client()
        metadata = await client.metadata(name, model_of(endpoint), await client.server(name))
        return zeros(name, metadata)


class EndpointHandler(_Handler):
    """``DELETE endpoints/NAME`` stops an endpoint."""

    @requires("write")
    async def delete(self, name: str) -> None:
        """Stop the endpoint, and wait for its end."""
        async with self.panel.used():
            try:
                await self.client().stop(name)
            except EndpointNotFoundError as exc:
                raise RefusedError("unknown", str(exc)) from exc
            await self.panel.monitor.refresh()
        self.set_status(204)
        self.finish()


class ExampleHandler(_Handler):
    """``GET endpoints/NAME/example`` returns a request that the endpoint's model accepts."""

    @requires("read")
    async def get(self, name: str) -> None:
        """Respond with the example of the model."""
        async with self.panel.used():
            text = await asyncio.to_thread(readable, await self.example(self.served(name)))
        self.answer({"request": text if len(text) <= MOST_SHOWN else None})


class InferHandler(_Handler):
    """``POST endpoints/NAME/infer`` sends a request to the endpoint."""

    @requires("execute")
    async def post(self, name: str) -> None:
        """Respond with the answer of the endpoint."""
        request = _request(self.body())
        async with self.panel.used():
            endpoint = self.served(name)
            if request is None:
                request = await self.example(endpoint)
            begun = time.perf_counter()
            found = await self.client().infer(name, model_of(endpoint), request)
            seconds = time.perf_counter() - begun
        text = await asyncio.to_thread(readable, found)
        self.answer({"answer": text[:MOST_SHOWN], "complete": len(text) <= MOST_SHOWN, "seconds": seconds})


def model_of(endpoint: Endpoint) -> str:
    """Return the name of an endpoint's model in requests, which is without its group."""
    return str(endpoint["model"]).rpartition("/")[2]


def readable(message: Mapping[str, Any]) -> str:
    """Return a message of the Open Inference Protocol as JSON, with a line for each tensor and for each other value."""
    values = ",\n".join(f" {strict_json(key)}: {_lines(value)}" for key, value in message.items())
    return f"{{\n{values}\n}}"


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        tensors = ",\n".join(f"  {strict_json(one)}" for one in value)
        return f"[\n{tensors}\n ]"
    return strict_json(value)


def _request(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the request in an ``EndpointRequest`` message; raise UsageError if it is not a JSON object."""
    if body.get("request", "") is None:
        return None
    try:
        return parse_json(typed(body, "request", str), "the request")
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
