"""Tests that the bench of serving counts each answer as right, failed or mixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from bench.serving.load import REQUEST, at_a_rate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEADERS = {"Authorization": "Bearer secret"}
RIGHT = {"model_version": "3", "outputs": [{"data": [3.0]}]}


@pytest.fixture
async def answers() -> AsyncIterator[tuple[str, list[Any]]]:
    """Run a server, and yield its URL and the answers that it sends one after the other: their status and JSON."""
    pending: list[Any] = []

    async def infer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == HEADERS["Authorization"]
        assert await request.json() == REQUEST
        status, body = pending.pop(0) if len(pending) > 1 else pending[0]
        return web.json_response(body, status=status) if isinstance(body, dict) else web.Response(text=body)

    app = web.Application()
    app.router.add_post("/infer", infer)
    async with TestServer(app) as server:
        yield str(server.make_url("/infer")), pending


async def test_right_answers_have_a_duration_and_a_version(answers):
    url, pending = answers
    pending += [(200, RIGHT), (200, {"model_version": "4", "outputs": [{"data": [4.0]}]})]
    outcome = await at_a_rate(url, 1000, 3, HEADERS)
    assert (outcome.failed, outcome.mixed, outcome.versions, len(outcome.seconds)) == ([], 0, {"3", "4"}, 3)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, {"error": "1024 requests wait already"}),
        (200, {"outputs": [{"data": [3.0]}]}),
        (200, {**RIGHT, "model_version": None}),
        (200, "<html>"),
    ],
    ids=["status", "no version", "version null", "not JSON"],
)
async def test_an_answer_without_a_version_has_failed(answers, status, body):
    url, pending = answers
    pending.append((status, body))
    outcome = await at_a_rate(url, 1000, 2, HEADERS)
    assert (len(outcome.failed), outcome.mixed, outcome.versions) == (2, 0, set())


async def test_an_answer_of_another_version_than_it_names_is_mixed(answers):
    url, pending = answers
    pending += [(200, {**RIGHT, "model_version": "4"}), (200, RIGHT)]
    outcome = await at_a_rate(url, 1000, 2, HEADERS)
    assert (outcome.failed, outcome.mixed) == ([], 1)
