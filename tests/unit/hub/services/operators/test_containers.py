"""Tests for the memory of servers that are containers, with a stand-in for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hub.services.operators.containers import ContainerMeasures, memory_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STATS = {"memory_stats": {"usage": 5000, "stats": {"inactive_file": 1000}}}
ANSWERS: dict[str, tuple[int, Any]] = {
    "/containers/lab-server-ada/stats": (200, STATS),
    "/containers/lab-server-ada--main-w0/stats": (200, {"memory_stats": {}}),
    "/containers/lab-server-bob/stats": (404, {"message": "No such container"}),
}


def model(user: str, *servers: str, ready: bool = True) -> dict[str, Any]:
    return {"name": user, "servers": {name: {"name": name, "ready": ready} for name in servers}}


@pytest.fixture
async def engine() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        assert dict(request.query) == {"stream": "false", "one-shot": "true"}
        status, content = ANSWERS[request.path]
        return web.json_response(content, status=status)

    app = web.Application()
    app.router.add_get("/{anything:.*}", answer)
    async with TestServer(app) as server:
        yield f"tcp://{server.host}:{server.port}"


async def test_the_engine_tells_the_memory_of_servers_that_run(engine: str) -> None:
    models = [model("ada", "", "main-w0"), model("bob", ""), model("carl", "", ready=False), model("dora")]
    measures = await ContainerMeasures(engine, "lab-server").of(models)
    assert (measures.memory, measures.homes) == ({("ada", ""): 4000}, {})


async def test_without_an_engine_no_memory_is_known(unused_tcp_port: int) -> None:
    measures = await ContainerMeasures(f"tcp://127.0.0.1:{unused_tcp_port}", "lab-server").of([model("ada", "")])
    assert measures.memory == {}


def test_the_cache_of_files_that_are_not_in_use_does_not_count() -> None:
    assert memory_of(STATS) == 4000
    assert memory_of({"memory_stats": {"usage": 5000}}) == 5000
    assert memory_of({}) is None
