"""Tests for large request bodies and the login at a notebook server of a real hub, through the hub's proxy."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.clients.hosts import connect
from tests.hub import RunningHub

USER = "blackwell"
MB = 1_000_000
STRANGERS = 20
SECONDS = 60
WHERE = f"/user/{USER}/api/contents/x"


@pytest.fixture(scope="module")
def server(hub: RunningHub) -> str:
    """The address of the notebook server of `USER`."""
    return hub.start_notebook(USER)


def stalled_body(url: str, size: int) -> socket.socket:
    """Send a request without a login and with a body that misses its last MB, and return the open connection."""
    parts = urlsplit(url)
    link = connect(url, SECONDS)
    head = f"POST {WHERE} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {size}\r\n\r\n"
    link.sendall(head.encode())
    for _ in range(size // MB - 1):
        link.sendall(bytes(MB))
    return link


@pytest.mark.parametrize("size", [25 * MB, pytest.param(200 * MB, marks=pytest.mark.release)], ids=["ci", "release"])
def test_bodies_of_strangers_do_not_fill_the_memory_of_a_notebook_server(
    hub: RunningHub, server: str, size: int
) -> None:
    process = hub._server(USER, "")
    token = hub.token_for(USER)
    before = process.memory_info().rss
    with ExitStack() as links:
        opened = [links.enter_context(stalled_body(server, size)) for _ in range(STRANGERS)]
        started = time.monotonic()
        assert hub.api(token, "GET", f"/user/{USER}/api/status").status_code == 200
        assert time.monotonic() - started < 5
        assert process.memory_info().rss - before < 60 * MB
        opened[-1].sendall(bytes(MB))
        assert b" 413 " in opened[-1].recv(100)
    assert process.is_running()


def test_a_user_saves_a_notebook_of_30_mb_with_the_first_request_of_a_token(hub: RunningHub, server: str) -> None:
    model = {"type": "file", "format": "text", "content": "x" * 30 * MB}
    saved = hub.api(hub.token_for(USER), "PUT", f"/user/{USER}/api/contents/token.txt", model)
    assert saved.status_code == 201, saved.text
    assert (hub.state / "homes" / USER / "token.txt").stat().st_size == 30 * MB
    refused = hub.api(hub.token_for("mallory"), "PUT", f"/user/{USER}/api/contents/token.txt", model)
    assert refused.status_code == 413
    assert "has no valid login" in json.loads(refused.text)["message"]


def test_a_page_has_no_token_and_its_login_saves_a_notebook_of_30_mb(hub: RunningHub, server: str) -> None:
    session = hub.browser(USER)._session
    page = session.get(f"{server}/lab", timeout=SECONDS)
    assert (page.status_code, page.url) == (200, f"{server}/lab")
    assert f'"hubUser": "{USER}"' in page.text
    assert '"token": ""' in page.text
    assert hub.environment_of(USER, "")["JUPYTERHUB_API_TOKEN"] not in page.text
    path = urlsplit(server).path
    xsrf = next(str(one.value) for one in session.cookies if one.name == "_xsrf" and one.path.startswith(path))
    login = [str(one.value) for one in session.cookies if one.name.endswith(f"jupyterhub-user-{USER}")]
    assert login, session.cookies
    model = {"type": "file", "format": "text", "content": "x" * 30 * MB}
    saved = session.put(f"{server}/api/contents/cookie.txt", json=model, headers={"X-XSRFToken": xsrf}, timeout=SECONDS)
    assert saved.status_code == 201, saved.text
    assert (hub.state / "homes" / USER / "cookie.txt").stat().st_size == 30 * MB
