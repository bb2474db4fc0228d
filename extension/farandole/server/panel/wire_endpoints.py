"""Types of the messages about endpoints, in the manner of `wire`."""

from __future__ import annotations

from typing import Literal, TypedDict


class Endpoint(TypedDict):
    """An endpoint. Without a ``model``, it runs ``command``.

    ``url`` is for programs elsewhere. ``requests_per_second``, ``errors`` and ``p95_ms`` (95 % of the requests took at
    most this many milliseconds) are those of the last minute, and null if they are unknown.
    """

    name: str
    url: str
    model: str | None
    version: int | None
    command: str | None
    ready: bool
    requests_per_second: float | None
    errors: int | None
    p95_ms: float | None


class EndpointsMessage(TypedDict):
    """The current state of all endpoints."""

    kind: Literal["endpoints"]
    endpoints: list[Endpoint]


class EndpointRequest(TypedDict):
    """Response to ``GET endpoints/NAME/example``, and body of ``POST endpoints/NAME/infer``: JSON of the protocol."""

    request: str


class EndpointAnswer(TypedDict):
    """Response to ``POST endpoints/NAME/infer``: what the endpoint has answered, as JSON, and how long it took."""

    answer: str
    seconds: float
