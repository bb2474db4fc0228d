"""Tests that a hub on this machine is waited for, and that no other program can answer browsers in its place."""

import http.server
import socket
import threading

import pytest

from hub.process import HubProcessError, hold_ipv6, is_healthy
from spawner_config.origins.hosts import PublicAddress


class Hub(http.server.BaseHTTPRequestHandler):
    """A server that answers health checks only at the hub's own host, as the hub does."""

    def do_GET(self):
        own = (self.headers["Host"], self.path) == (f"hub.test:{self.server.server_port}", "/hub/health")
        self.send_response(200 if own else 421)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def port():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_a_hub_is_ready_before_its_name_leads_to_it(port):
    assert is_healthy(PublicAddress(scheme="http", domain="hub.test", port=port).url)
    assert not is_healthy(f"http://other.test:{port}")


def test_no_other_program_can_listen_at_the_hubs_port_of_ipv6(port):
    holder = hold_ipv6(port)
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("::1", port))
        # Browsers then try 127.0.0.1.
        with socket.socket(socket.AF_INET6) as browser, pytest.raises(ConnectionRefusedError):
            browser.connect(("::1", port))
        holder.close()
        other.bind(("::1", port))
        other.listen()
        with pytest.raises(HubProcessError, match=rf"Another program uses port {port} of ::1.*set FARANDOLE_PORT"):
            hold_ipv6(port)
