"""A user's own server starts with its endpoint, and gets only admitted requests, without the credentials of callers."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import websocket
from farandole.serving.command import _foreign_cookies, _is_own_page, _without_token
from tornado.httputil import HTTPHeaders

from hub.process import wait_until
from spawner_config.local import free_port

SCOPE = "access:servers!server=ada/serve-app"
PREFIX = "/user/ada/serve-app/"
MAIN = """
import farandole.serving
farandole.serving.CACHE_SECONDS = 1
from farandole.serving import command
command.START_SECONDS = {start_seconds}
command.main()
"""
SERVER = """
import asyncio, json, os, sys
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

def seen(request):
    return json.dumps({"uri": request.uri, "headers": dict(request.headers), "words": sys.argv[1:]})

class Page(RequestHandler):
    def get(self):
        self.finish(seen(self.request))

    def post(self):
        if self.request.path == "/crash":
            os._exit(1)
        self.get()

class Socket(WebSocketHandler):
    def check_origin(self, origin):
        return True

    def open(self):
        self.write_message(seen(self.request))

    def on_message(self, message):
        self.write_message(message)

async def main():
    Application([("/socket", Socket), ("/.*", Page)]).listen(int(os.environ["PORT"]), "127.0.0.1")
    await asyncio.Event().wait()

asyncio.run(main())
"""
BRACES = ['{"a": {"b": 1}}', "{{port}}", "{unknown}", "{"]


class FakeHub(BaseHTTPRequestHandler):
    """Knows the scopes of tokens, answers 503 to those in ``unanswered``, and counts the questions about each."""

    tokens: ClassVar[dict[str, list[str]]] = {}
    unanswered: ClassVar[set[str]] = set()
    asked: ClassVar[dict[str, int]] = {}

    def do_GET(self):
        token = self.headers["Authorization"].removeprefix("token ")
        self.asked[token] = self.asked.get(token, 0) + 1
        if token in self.unanswered:
            self.answer(503, {})
        elif token in self.tokens:
            self.answer(200, {"name": "ada", "kind": "user", "scopes": self.tokens[token]})
        else:
            self.answer(403, {})

    def do_POST(self):
        """Log in a browser: the code of the login is the token."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.answer(200, {"access_token": parse_qs(text)["code"][0]})

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_about):
        """Print nothing."""


@pytest.fixture(scope="module")
def hub():
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeHub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def token(request):
    """A new token that may access the endpoint."""
    FakeHub.tokens[name := request.node.name] = [SCOPE]
    return name


def started(hub, log, command, *, port=1, start_seconds=60):
    """Start the process of an endpoint with a command."""
    own = {
        "JUPYTERHUB_API_TOKEN": "own",
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub}/hub/api",
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-ada-serve-app",
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": json.dumps([SCOPE]),
        "JUPYTERHUB_SERVICE_PREFIX": PREFIX,
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}{PREFIX}",
        "JUPYTERHUB_USER": "ada",
    }
    main = [sys.executable, "-c", MAIN.format(start_seconds=start_seconds)]
    return subprocess.Popen([*main, "--", *command], env={**os.environ, **own}, stdout=log, stderr=log)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The file with the log of the endpoint."""
    return tmp_path_factory.mktemp("command") / "log"


@pytest.fixture(scope="module")
def url(hub, log):
    """The address of an endpoint that runs `SERVER`."""
    script = log.with_name("server.py")
    script.write_text(SERVER)
    port = free_port()
    command = [sys.executable, str(script), "{port}", "--path={base_url}/x", *BRACES]
    with log.open("wb") as stream, started(hub, stream, command, port=port) as process:
        wait_until(lambda: answers(port) or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
        found = f"http://127.0.0.1:{port}{PREFIX}"
        FakeHub.tokens["first"] = [SCOPE]
        own_port = int(httpx.get(found, headers=bearer("first")).json()["words"][0])
        yield found
        process.terminate()
        assert process.wait(30) == 0
    wait_until(lambda: not answers(own_port), 30)


def answers(port):
    try:
        httpx.get(f"http://127.0.0.1:{port}/")
    except httpx.TransportError:
        return False
    return True


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def logged_in(url, token):
    """Return a browser that is logged in to the endpoint."""
    browser = httpx.Client(base_url=url)
    redirect = urlsplit(browser.get("").headers["Location"])
    assert redirect.path == "/hub/api/oauth2/authorize"
    state = parse_qs(redirect.query)["state"][0]
    answer = browser.get("oauth_callback", params={"code": token, "state": state})
    assert (answer.status_code, answer.headers["Location"]) == (302, PREFIX)
    return browser


def connect(url, query="", **options):
    return websocket.create_connection(f"{url.replace('http', 'ws', 1)}socket{query}", timeout=20, **options)


def test_the_command_gets_its_words_with_port_and_path(url, token):
    port, path, *others = httpx.get(url, headers=bearer(token)).json()["words"]
    assert port.isdecimal()
    assert path == f"--path={PREFIX}x"
    assert others == [word.replace("{port}", port) for word in BRACES]


def test_the_command_gets_no_credentials_of_a_request(url, token):
    headers = {**bearer(token), "Cookie": "theme=dark; __Host-jupyterhub-user-ada-serve-app=secret; _xsrf=secret"}
    seen = httpx.get(f"{url}page?a=1&token=secret&b=%26&%74oken=secret", headers=headers).json()
    assert seen["uri"] == "/page?a=1&b=%26"
    assert seen["headers"]["Cookie"] == "theme=dark"
    assert "secret" not in json.dumps(seen)
    assert token not in json.dumps(seen)


def test_the_command_gets_no_token_of_a_websocket(url, token):
    seen = connect(url, f"?token={token}&a=1", header=["Sec-Fetch-Mode: websocket"]).recv()
    assert json.loads(seen)["uri"] == "/socket?a=1"
    assert token not in seen


@pytest.mark.parametrize(
    ("method", "path", "status"), [("PUT", "page", 405), ("PROPFIND", "page", 405), ("GET", "%ff", 400)]
)
def test_the_log_of_a_failed_request_has_no_token(url, log, token, method, path, status):
    answer = httpx.request(method, f"{url}{path}?a=1&token=secret&t%6Fken=secret", headers=bearer(token))
    assert answer.status_code == status
    wait_until(lambda: f"{status} {method} {PREFIX}{path}?a=1" in log.read_text(), 20)
    assert "secret" not in log.read_text()


def test_the_log_of_a_refused_request_has_no_token(url, log):
    FakeHub.tokens["valid"] = [SCOPE]
    assert httpx.post(f"{url}refused?token=valid").status_code == 403
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        connect(url, "?token=valid", origin="https://elsewhere.example.org")
    wait_until(lambda: all(f"403 {one}" in log.read_text() for one in (f"POST {PREFIX}refused", f"GET {PREFIX}so")), 20)
    assert "token=" not in log.read_text()


@pytest.mark.parametrize("headers", [bearer("revoked"), {"Authorization": "Basic YTpi"}, {"Authorization": ""}])
def test_a_program_with_a_wrong_token_is_refused(url, headers):
    assert httpx.get(url, headers=headers).status_code == 403
    assert httpx.post(url, headers=headers).status_code == 403


def test_a_token_without_the_scope_is_refused(url):
    FakeHub.tokens["other"] = ["access:servers!server=ada/serve-other"]
    assert httpx.get(url, headers=bearer("other")).status_code == 403
    assert httpx.post(url, headers=bearer("other")).status_code == 403


def test_a_browser_without_a_login_is_redirected_and_changes_nothing(url):
    answer = httpx.get(url)
    assert (answer.status_code, urlsplit(answer.headers["Location"]).path) == (302, "/hub/api/oauth2/authorize")
    assert httpx.post(url).status_code == 403
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        connect(url)


@pytest.mark.parametrize("more", [{}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer revoked"}])
def test_a_page_of_another_origin_changes_nothing_with_a_users_login(url, token, more):
    browser = logged_in(url, token)
    own, other = f"http://{urlsplit(url).netloc}", "https://elsewhere.example.org"
    assert browser.get("", headers=more).status_code == 200
    assert browser.post("", headers={"Origin": own, **more}).status_code == 200
    assert browser.post("", headers={"Origin": other, **more}).status_code == 403
    assert browser.post("", headers=more).status_code == 403
    assert browser.post("", headers={"Sec-Fetch-Site": "same-site", **more}).status_code == 403
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    header = [f"{name}: {value}" for name, value in more.items()]
    assert json.loads(connect(url, cookie=cookies, origin=own, header=header).recv())["headers"].get("Cookie") is None
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        connect(url, cookie=cookies, origin=other, header=header)


def test_a_program_with_a_token_may_change_something(url, token):
    assert httpx.post(url, headers={**bearer(token), "Origin": "https://elsewhere.example.org"}).status_code == 200


def test_an_open_websocket_ends_with_its_token(url, token):
    FakeHub.tokens |= {"revoked later": [SCOPE], "not answered later": [SCOPE]}
    revoked, kept, unanswered = (
        connect(url, header=bearer(one)) for one in ("revoked later", token, "not answered later")
    )
    for one in (revoked, kept, unanswered):
        one.recv()
    del FakeHub.tokens["revoked later"]
    FakeHub.unanswered.add("not answered later")
    before = FakeHub.asked["not answered later"]
    opcode, data = revoked.recv_data(control_frame=True)
    assert (opcode, int.from_bytes(data[:2], "big")) == (websocket.ABNF.OPCODE_CLOSE, 1008)
    wait_until(lambda: FakeHub.asked["not answered later"] > before, 20)
    for one in (kept, unanswered):
        one.send("still open")
        assert one.recv() == "still open"


def test_a_command_that_fails_later_is_started_again(url, token):
    headers = bearer(token)
    assert httpx.post(f"{url}crash", headers=headers).status_code >= 500
    wait_until(lambda: httpx.get(url, headers=headers).status_code == 200, 30)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([sys.executable, "missing.py"], "the command ended with the exit code 2 and did not listen on the port "),
        ([sys.executable, "-c", "pass"], "the command ended with the exit code 0 and did not listen on the port "),
        (["no-such-program"], "the command 'no-such-program' cannot be run: No such file or directory; check"),
        ([sys.executable, "-c", "import signal; signal.pause()"], "within 1 s; write {port} where it needs the port"),
    ],
)
def test_an_endpoint_whose_command_does_not_start_ends(hub, tmp_path, command, message):
    log = tmp_path / "log"
    with (
        log.open("wb") as stream,
        started(hub, stream, command, start_seconds=1 if "pause" in command[-1] else 60) as process,
    ):
        assert process.wait(60) == 1
    last = log.read_text().splitlines()[-1]
    assert last.startswith("CommandError: the command ")
    assert message in last


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({"Origin": "https://ada.hub.example.org"}, True),
        ({"Origin": "https://ADA.hub.example.org", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "https://eve.hub.example.org", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Origin": "https://ada.hub.example.org:8443"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({}, False),
    ],
)
def test_only_pages_of_the_endpoint_are_its_own(headers, own):
    assert _is_own_page(SimpleNamespace(headers=HTTPHeaders(headers), host="ada.hub.example.org")) is own


@pytest.mark.parametrize(
    ("cookies", "passed_on"),
    [
        ("", ""),
        ("jupyterhub-session-id=1", ""),
        ("jupyterhub-user-ada-serve-app=1; theme=dark; _xsrf=2", "theme=dark"),
        ("__Host-jupyterhub-user-ada-serve-app=1; __Host-_xsrf=2; __Host-jupyterhub-session-id=3", ""),
        ("__Host-theme=dark; a=1", "__Host-theme=dark; a=1"),
        ('theme=dark;session="a b,c";  jupyterhub-hub-login=1', 'theme=dark; session="a b,c"'),
        ("invalid[name]=1; theme=dark; jupyterhub-session-id=1; no-value", "invalid[name]=1; theme=dark; no-value"),
    ],
)
def test_only_cookies_of_the_hub_are_removed(cookies, passed_on):
    assert _foreign_cookies(cookies) == passed_on


@pytest.mark.parametrize(
    ("query", "passed_on"),
    [
        ("", ""),
        ("token=1", ""),
        ("a=1&token=2&b", "a=1&b"),
        ("t%6Fken=1&token&tokens=2", "tokens=2"),
        ("a=%26token%3D1&a=+", "a=%26token%3D1&a=+"),
    ],
)
def test_only_tokens_are_removed_from_a_query(query, passed_on):
    assert _without_token(query) == passed_on
