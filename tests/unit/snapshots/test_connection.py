"""Tests for the request to the hub's snapshot service, with a real HTTP server in its place."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from farandole.exceptions import SnapshotError
from farandole.snapshots.connection import open_repository

TOKEN = "to/ken"
ANSWER = {"repository": "rest:http://hub/hub-1/services/snapshots/repositories/ada/", "password": "secret"}


@contextmanager
def hub(status, body, headers=()):
    """Run a server that gives one answer; yield the environment of a server of this hub, and the requests."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append((self.path, dict(self.headers)))
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        environment = {"FARANDOLE_HUB_URL": f"http://{address}/hub-1/", "JUPYTERHUB_API_TOKEN": TOKEN}
        try:
            yield {**environment, "JUPYTERHUB_USER": "ada@lab"}, requests
        finally:
            server.shutdown()
            thread.join()


def test_the_token_goes_to_the_own_hub_only(monkeypatch):
    # A proxy for other machines would learn the token.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with hub(200, json.dumps(ANSWER).encode()) as (environment, requests):
        found = open_repository(environment)
    address = environment["FARANDOLE_HUB_URL"].split("/")[2]
    assert found.url == f"rest:http://ada%40lab:to%2Fken@{address}/hub-1/services/snapshots/repositories/ada/"
    assert (found.password, found.proxy) == ("secret", "")
    assert "secret" not in repr(found)
    assert "ken" not in repr(found)
    [(path, headers)] = requests
    assert path == "/hub-1/services/snapshots/open"
    assert headers["Authorization"] == f"token {TOKEN}"
    assert headers["Host"] == address


@pytest.mark.parametrize("public", ["https://hub.example.org", "http://hub.example.org"])
def test_a_hub_that_routes_by_host_is_the_proxy_of_restic(public):
    with hub(200, json.dumps(ANSWER).encode()) as (environment, requests):
        found = open_repository({**environment, "JUPYTERHUB_HOST": public})
    address = environment["FARANDOLE_HUB_URL"].split("/")[2]
    assert found.url == "rest:http://ada%40lab:to%2Fken@hub.example.org/hub-1/services/snapshots/repositories/ada/"
    assert found.proxy == f"http://{address}"
    [(_, headers)] = requests
    assert headers["Host"] == "hub.example.org"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b"<html>", "This hub has no snapshots"),
        (302, b"", "This hub has no snapshots"),
        (403, b'{"message": "lacks a scope"}', r"does not let this server use snapshots \(403 lacks a scope\)"),
        (401, b"[]", r"does not let this server use snapshots \(401 Unauthorized\)"),
        (500, b'{"message": "The hub cannot create it\\n."}', "did not open your repository: The hub cannot create it"),
        (503, b"<html>", "did not open your repository: Service Unavailable. Try again"),
        (200, b"<html>", "sent an invalid answer"),
        (200, b'{"repository": 1}', "sent an invalid answer"),
    ],
)
def test_an_answer_that_is_no_repository_is_explained(status, body, message):
    with (
        hub(status, body, [("Location", "http://127.0.0.1:1/")]) as (environment, _),
        pytest.raises(SnapshotError, match=message),
    ):
        open_repository(environment)


def test_a_hub_that_does_not_answer_is_explained():
    environment = {"FARANDOLE_HUB_URL": "http://127.0.0.1:1/", "JUPYTERHUB_API_TOKEN": TOKEN}
    with pytest.raises(SnapshotError, match=r"does not answer \(\[Errno 111\] Connection refused\); it may"):
        open_repository(environment)


def test_without_a_hub_there_are_no_snapshots():
    with pytest.raises(SnapshotError, match="this process does not belong to a server of one"):
        open_repository({})
