"""Registries that mean harm, or are none: no login goes to another host, and no answer without an end is read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import requests
from farandole.exceptions import RegistryDeniedError, RegistryError
from farandole.registry.client import Registry, Scope, digest_of
from farandole.registry.reference import parse_reference
from farandole.registry.transport import REFUSAL_CHARACTERS, Transport

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = digest_of(b"x")
ADA = "Basic YWRhOnNlY3JldA=="
ENDLESS_BYTES = 50_000_000
Answer = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Gives each request the same answer. It keeps the methods, the paths and the logins, and counts connections."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.host = f"127.0.0.1:{self.server_port}"
        self.seen: list[tuple[str, str, str | None]] = []
        self.connections = 0
        self.sent = 0


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, self.headers.get("Authorization")))
        # The client closes the connection when it has read enough.
        with suppress(ConnectionError):
            self.server.answer(self)

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        pass


def answer(status: int, content: bytes = b"", *, reason: str | None = None, **headers: str) -> Answer:
    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status, reason)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    return send


def endless(status: int, **headers: str) -> Answer:
    def send(request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        server = request.server
        assert isinstance(server, Server)
        while server.sent < ENDLESS_BYTES:
            request.wfile.write(bytes(100_000))
            server.sent += 100_000

    return send


Serve = Callable[[Answer], Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(given: Answer) -> Server:
            server = stack.enter_context(Server(given))
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(server.shutdown)
            return server

        yield start


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home with a login for localhost, which requests would send there after a redirect."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    (tmp_path / ".netrc").write_text("machine localhost login ada password other\n")


def ask(server: Server) -> Any:
    return Registry(server.host, "http", ("ada", "secret")).manifest("lab/iris", "1")


def test_the_login_does_not_follow_a_redirect_to_another_host(serve: Serve) -> None:
    elsewhere = serve(answer(200, b"{}", Content_Type="a/b"))
    port = urlsplit(f"//{elsewhere.host}").port

    def redirect(request: BaseHTTPRequestHandler) -> None:
        is_in = request.headers.get("Authorization") is not None
        there = answer(307, Location=f"http://localhost:{port}/there")
        there(request) if is_in else answer(401, WWW_Authenticate="Basic realm=a")(request)

    server = serve(redirect)
    assert ask(server).content == b"{}"
    assert [login for *_, login in server.seen] == [None, ADA]
    assert elsewhere.seen == [("GET", "/there", None)]


def test_a_host_after_a_redirect_cannot_ask_for_the_login(serve: Serve) -> None:
    tokens = serve(answer(200, b'{"token": "a"}'))
    bearer = f'Bearer realm="http://{tokens.host}/token",service="a"'
    elsewhere = serve(answer(401, WWW_Authenticate=bearer))
    server = serve(answer(307, Location=f"http://{elsewhere.host}/there"))
    with pytest.raises(RegistryDeniedError, match=r"401 Unauthorized\.$"):
        ask(server)
    assert tokens.seen == []
    assert [login for *_, login in (*server.seen, *elsewhere.seen)] == [None, None]


def test_a_redirect_without_an_end_is_refused(serve: Serve) -> None:
    server = serve(answer(307, Location="/v2/again"))
    with pytest.raises(RegistryError, match="redirects more than 5 times; is it a registry"):
        ask(server)


@pytest.mark.parametrize("location", ["http://[bad", "http://a:99999999/", "http://127.0.0.1:1/\xe9", "file:///etc/x"])
def test_an_address_that_is_none_is_an_error_of_the_registry(serve: Serve, location: str) -> None:
    upload, redirect = serve(answer(202, Location=location)), serve(answer(307, Location=location))
    with pytest.raises(RegistryError, match="which is not an address|does not answer"):
        Registry(upload.host, "http").upload("lab/iris", DIGEST, 1, iter([b"x"]))
    with pytest.raises(RegistryError, match="which is not an address|does not answer"):
        ask(redirect)


def test_a_registry_with_tls_cannot_point_to_an_address_without() -> None:
    response = requests.Response()
    response.url, response.headers["Location"] = "https://a.b/v2/", "http://a.b/upload"
    with pytest.raises(RegistryError, match=r"^a\.b points to http://a\.b/upload, which has no TLS\. "):
        Transport(host="a.b", scheme="https").location(response)
    assert Transport(host="a.b", scheme="http").location(response) == "http://a.b/upload"


@pytest.mark.parametrize(
    ("url", "is_own"),
    [("https://A.b/x", True), ("https://a.b:443/x", True), ("http://a.b/x", False), ("https://a.b:5000/x", False)],
)
def test_an_address_of_the_registry_is_recognized(url: str, is_own: bool) -> None:
    assert Transport(host="a.b", scheme="https").is_own(url) is is_own


def test_a_request_that_writes_follows_no_redirect(serve: Serve) -> None:
    server = serve(answer(301, Location="https://a.b/v2/"))
    with pytest.raises(RegistryError, match=r"refused \S+/lab/iris: 301 Moved Permanently to https://a\.b/v2/\.$"):
        Registry(server.host, "http").upload("lab/iris", DIGEST, 1, iter([b"x"]))


@pytest.mark.parametrize("status", [200, 201, 307, 400, 401, 500])
def test_no_endless_answer_is_read(serve: Serve, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farandole.registry.transport.PAUSES", ())
    server = serve(endless(status, WWW_Authenticate="Basic realm=a", Location="/v2/again"))
    with pytest.raises(RegistryError):
        ask(server)
    with suppress(RegistryError):
        Registry(server.host, "http", ("ada", "secret")).upload("lab/iris", DIGEST, 1, iter([b"x"]))
    assert server.sent < ENDLESS_BYTES


def test_no_endless_token_is_read(serve: Serve) -> None:
    tokens = serve(endless(200))
    server = serve(answer(401, WWW_Authenticate=f'Bearer realm="http://{tokens.host}/"'))
    with pytest.raises(RegistryError, match="answered with more than 4194304 bytes"):
        ask(server)


@pytest.mark.parametrize("asked", ["", "Digest realm=a", "Bearer", 'Bearer realm="ftp://a.b/"'])
def test_an_unknown_kind_of_login_is_named(serve: Serve, asked: str) -> None:
    headers = {"WWW_Authenticate": asked} if asked else {}
    with pytest.raises(RegistryError, match=f"asks for a login of an unknown kind: {asked or 'nothing'}"):
        ask(serve(answer(401, b"", **headers)))


@pytest.mark.parametrize("token", [b"{}", b"[]", b'{"token": "a\\nb"}', '{"token": "\u20ac"}'.encode(), b"no"])
def test_a_token_that_is_none_is_an_error(serve: Serve, token: bytes) -> None:
    tokens = serve(answer(200, token))
    with pytest.raises(RegistryError, match=rf"http://{tokens.host}/ gave no token"):
        ask(serve(answer(401, WWW_Authenticate=f'Bearer realm="http://{tokens.host}/"')))


def test_a_password_has_any_characters(serve: Serve) -> None:
    tokens = serve(answer(200, b'{"token": "a"}'))
    server = serve(answer(401, WWW_Authenticate=f'Bearer realm="http://{tokens.host}/"'))
    with pytest.raises(RegistryDeniedError):
        Registry(server.host, "http", ("ada", "\u20ac")).manifest("lab/iris", "1")
    assert [login for *_, login in tokens.seen] == ["Basic YWRhOuKCrA=="]


def test_no_representation_has_a_password() -> None:
    registry = Registry("a.b", "https", ("ada", "secret"))
    registry._tokens[Scope("lab/iris")] = "secret"
    assert "secret" not in repr(registry)


def test_a_refusal_is_shown_without_control_characters_and_not_in_full(serve: Serve) -> None:
    with pytest.raises(RegistryError, match=r"418 \?\[31mred\.$"):
        ask(serve(answer(418, reason="\x1b[31mred")))
    errors = json.dumps({"errors": [{"code": "DENIED", "message": "no" * REFUSAL_CHARACTERS}]}).encode()
    with pytest.raises(RegistryError, match=r"DENIED: no.*\.\.\.\.$") as refused:
        ask(serve(answer(400, errors)))
    assert len(str(refused.value)) < 2 * REFUSAL_CHARACTERS


def test_a_name_in_upper_case_is_the_same_registry(serve: Serve) -> None:
    def login(request: BaseHTTPRequestHandler) -> None:
        is_in = request.headers.get("Authorization") is not None
        answer(202, Location="/up")(request) if is_in else answer(401, WWW_Authenticate="Basic realm=a")(request)

    server = serve(login)
    reference = parse_reference(f"http://{server.host.replace('127.0.0.1', 'LOCALHOST')}/lab/iris")
    Registry.of(reference, ("ada", "secret")).upload("lab/iris", DIGEST, 1, iter([b"x"]))
    assert [(method, login) for method, _, login in server.seen] == [("POST", None), ("POST", ADA), ("PUT", ADA)]


def test_a_connection_is_used_again(serve: Serve) -> None:
    server = serve(answer(201, Location="/up"))
    registry = Registry(server.host, "http")
    for _ in range(2):
        assert registry.has_blob("lab/iris", DIGEST)
        registry.upload("lab/iris", DIGEST, 1, iter([b"x"]))
    assert server.connections == 1


def test_a_host_with_a_long_name_is_an_error() -> None:
    with pytest.raises(RegistryError, match=r"does not answer: label empty or too long\.$"):
        Registry(f"{'a' * 64}.invalid", "http").manifest("lab/iris", "1")
