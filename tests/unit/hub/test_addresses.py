"""Tests that HTTP sessions resolve names below localhost as browsers do, and keep each host's cookies apart."""

import http.server
import ssl
import threading
from contextlib import contextmanager

import pytest
import requests

from hub.addresses import session_to
from hub.process import local_session
from tests.unit.hub.test_certificate import make_pair


class Echo(http.server.BaseHTTPRequestHandler):
    """A server that responds with the host and cookies of each request. `/to/HOST` redirects to that host."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        host = self.headers["Host"]
        redirect = self.path.startswith("/to/")
        body = f"{host} {self.headers.get('Cookie')}".encode()
        self.send_response(302 if redirect else 200)
        if redirect:
            self.send_header("Location", f"http://{self.path.removeprefix('/to/')}:{self.server.server_port}/there")
        self.send_header("Set-Cookie", f"of={host.partition(':')[0]}; Path=/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def served(wrap=lambda socket: socket):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.socket = wrap(server.socket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def port():
    with served() as port:
        yield port


def test_a_name_below_localhost_is_this_machine(port):
    answer = local_session().get(f"http://ada.hub.localhost:{port}/", timeout=5)
    assert answer.text == f"ada.hub.localhost:{port} None"
    assert answer.url == f"http://ada.hub.localhost:{port}/"


def test_a_redirect_leads_to_the_other_host_without_the_cookies_of_the_first(port):
    session = session_to(lambda _host: "127.0.0.1")
    session.get(f"http://ada.hub.test:{port}/", timeout=5)
    answer = session.get(f"http://ada.hub.test:{port}/to/hub.test", timeout=5)
    assert answer.text == f"hub.test:{port} None"


def test_a_certificate_is_checked_for_the_name_and_not_for_the_address(tmp_path):
    folder = make_pair(tmp_path, names=["hub.test", "*.hub.test"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    session = session_to(lambda _host: "127.0.0.1")
    session.verify = str(folder / "tls.crt")
    with served(lambda socket: context.wrap_socket(socket, server_side=True)) as port:
        for host in ("hub.test", "ada.hub.test"):
            assert session.get(f"https://{host}:{port}/", timeout=5).text.startswith(f"{host}:{port} ")
        with pytest.raises(requests.exceptions.SSLError, match="hub.example.org"):
            session.get(f"https://hub.example.org:{port}/", timeout=5)
