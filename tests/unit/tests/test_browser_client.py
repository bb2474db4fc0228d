"""Tests for the browser client, with a fake hub that sends prepared answers."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from hub.process import is_healthy
from tests.clients.browser import Browser, BrowserError

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_STARTING = (400, '{"message": "ada is not starting..."}')
READY = (200, f"data: {json.dumps({'ready': True})}\n\n")
FAILED = (200, f"data: {json.dumps({'failed': True, 'message': 'no room'})}\n\n")


@contextmanager
def hub(*progress: tuple[int, str]) -> Iterator[str]:
    """Run a hub that accepts all logins. It answers progress requests with ``progress`` and repeats the last answer."""
    answers = list(progress)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "/progress" in self.path:
                self.answer(*(answers.pop(0) if len(answers) > 1 else answers[0]))
            else:
                self.answer(200, "")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(302, "")

        def answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Set-Cookie", "_xsrf=x")
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_start_waits_for_the_hubs_cleanup() -> None:
    with hub(NOT_STARTING, NOT_STARTING, READY) as url:
        assert Browser(url, "ada", "secret").start_notebook() == f"{url}/user/ada"


def test_the_reason_of_a_failed_start_is_raised() -> None:
    with hub(NOT_STARTING, FAILED) as url, pytest.raises(BrowserError, match="did not start: no room"):
        Browser(url, "ada", "secret").start_notebook()


def test_a_hub_without_progress_is_given_up_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.clients.browser.STOP_DEADLINE", 0.5)
    with hub(NOT_STARTING) as url, pytest.raises(BrowserError, match="HTTP 400.*ada is not starting"):
        Browser(url, "ada", "secret").start_notebook()


@pytest.mark.parametrize("answer", [(403, "no scope"), (200, "")], ids=["refused", "closed"])
def test_unreadable_progress_does_not_raise_an_error_of_the_library(answer: tuple[int, str]) -> None:
    with hub(answer) as url, pytest.raises(BrowserError, match="no scope|closed the stream of progress"):
        Browser(url, "ada", "secret").start_notebook()


def test_a_hub_that_accepts_a_connection_without_an_answer_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not is_healthy(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)


def test_a_port_without_a_listener_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert not is_healthy(f"http://127.0.0.1:{port}")
