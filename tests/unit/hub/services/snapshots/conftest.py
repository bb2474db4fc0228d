"""A running service for snapshots, and restic as a user of it runs it."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.clients.snapshots import ADA, GRACE, Client, Hub, Service

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def hub_url() -> Iterator[str]:
    """The address of the stand-in for the hub."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def service(hub_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A running service, in which ada and grace have a repository."""
    running = Service(tmp_path_factory.mktemp("state"), hub_url, FARANDOLE_SNAPSHOTS_BYTES="200M")
    running.open(ADA)
    running.open(GRACE)
    yield running
    running.kill()


@pytest.fixture(scope="module")
def restic(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Ada's restic."""
    return Client(service.open(ADA), "ada", ADA, tmp_path_factory.mktemp("client") / "ada")
