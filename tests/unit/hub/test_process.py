"""Tests for waiting until a hub on this machine is ready."""

import http.server
import threading

import pytest

from hub.process import is_healthy
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
