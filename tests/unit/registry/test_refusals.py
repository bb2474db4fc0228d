"""Registries that refuse, break off or do not answer, and several publishes at once: nothing is left half-made."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from farandole.exceptions import ModelDamagedError, RegistryDeniedError, RegistryError
from farandole.registry import transport
from farandole.registry.client import Registry
from farandole.registry.layer import Layer, pieces
from farandole.registry.publish import publish
from farandole.registry.reference import parse_reference

from tests.models import save_small
from tests.registry import BASE, RunningRegistry, push_serving_image, running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from farandole.models.model import ModelInfo
    from farandole.models.store import ModelStore

WEIGHTS = secrets.token_bytes(3_000_000)
BROKEN = "(Connection reset by peer|Broken pipe|Remote end closed connection without response)"
"""Why a broken connection got no answer, which depends on what the client does when it breaks."""


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    return f"lab/{request.node.name.replace('_', '-').replace('[', '.').rstrip(']').lower()}"


@pytest.fixture
def info(model_store: ModelStore) -> ModelInfo:
    return save_small(model_store, weights=WEIGHTS)


def check_that_nothing_is_left(registry: RunningRegistry, repository: str, info: ModelInfo) -> None:
    """Check that there is neither the tag nor the layer."""
    target = registry.reference(f"{repository}:1")
    assert Registry.of(target).manifest(target.repository, "1") is None
    assert not Registry.of(target).has_blob(target.repository, Layer.of(info).digest)


class Denying(BaseHTTPRequestHandler):
    """A registry that lets everybody read, and nobody write. It has nothing."""

    def do_GET(self) -> None:
        self._answer(404, "MANIFEST_UNKNOWN", "manifest unknown")

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def do_POST(self) -> None:
        self._answer(403, "DENIED", "requested access to the resource is denied")

    def _answer(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_registry_that_denies_a_push_is_named_with_the_ways_out(registry: RunningRegistry, info: ModelInfo) -> None:
    with serving(Denying) as host, pytest.raises(RegistryDeniedError) as refused:
        publish(info, parse_reference(f"{host}/lab/iris"), registry.reference(BASE))
    said = str(refused.value)
    assert said.startswith(f"{host} does not allow this for {host}/lab/iris: DENIED: requested access to the resource")
    assert "with `--user`" in said
    assert "with `--file`" in said


def test_a_registry_that_is_read_only_is_named(info: ModelInfo, repository: str, tmp_path: Path) -> None:
    maintenance = {"readonly": {"enabled": True}}
    with running_registry(tmp_path / "base") as base:
        push_serving_image(base.reference(BASE))
        storage = {"filesystem": {"rootdirectory": str(tmp_path / "closed" / "data")}, "maintenance": maintenance}
        with running_registry(tmp_path / "closed", storage=storage) as closed:
            with pytest.raises(RegistryError, match=rf"^{closed.host} refused {closed.host}/lab/\S+: 405 Method"):
                publish(info, closed.reference(repository), base.reference(BASE))
            check_that_nothing_is_left(closed, repository, info)


def test_publishes_of_one_version_at_once_all_succeed(
    registry: RunningRegistry, repository: str, info: ModelInfo
) -> None:
    target, base = registry.reference(repository), registry.reference(BASE)
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: publish(info, target, base), range(4))]
    assert len({each.reference for each in found}) == 1
    assert publish(info, target, base).sent == 0


def test_publishes_of_several_versions_at_once_all_succeed(
    registry: RunningRegistry, repository: str, model_store: ModelStore
) -> None:
    target, base = registry.reference(repository), registry.reference(BASE)
    infos = [save_small(model_store, weights=bytes([number]) * 1_000_000) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda info: publish(info, target, base), infos)]
    assert [each.reference.tag for each in found] == ["1", "2", "3", "4"]
    for each in found:
        manifest = Registry.of(target).manifest(target.repository, each.reference.tag)
        assert manifest is not None
        assert manifest.digest == each.reference.digest


def test_a_tag_that_another_version_gets_during_an_upload_stays(
    registry: RunningRegistry, repository: str, info: ModelInfo, model_store: ModelStore, monkeypatch: Any
) -> None:
    target, base = registry.reference(f"{repository}:best"), registry.reference(BASE)
    other = save_small(model_store, weights=b"other")
    first = []

    def overtaken(info: ModelInfo) -> Iterator[bytes]:
        if not first:
            first.append(None)
            first[0] = publish(other, target, base)
        yield from pieces(info)

    monkeypatch.setattr("farandole.registry.publish.pieces", overtaken)
    with pytest.raises(RegistryError, match=rf"{repository}:best is another image already .*nothing is changed"):
        publish(info, target, base)
    manifest = Registry.of(target).manifest(target.repository, "best")
    assert manifest is not None
    assert manifest.digest == first[0].reference.digest


class Cutting(socketserver.BaseRequestHandler):
    """Passes a connection on to a registry. The first one that sends more than a megabyte is cut."""

    server: CuttingServer

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as registry:
            back = threading.Thread(target=copy, args=(registry, self.request), daemon=True)
            back.start()
            sent = 0
            while piece := self.request.recv(65536):
                sent += len(piece)
                if sent > 1_000_000 and not self.server.has_cut:
                    self.server.has_cut = True
                    return
                registry.sendall(piece)


def copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)


class CuttingServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, host: str) -> None:
        super().__init__(("127.0.0.1", 0), Cutting)
        name, _, port = host.rpartition(":")
        self.target = (name, int(port))
        self.has_cut = False


def test_an_upload_over_a_connection_that_breaks_leaves_nothing(
    registry: RunningRegistry, repository: str, info: ModelInfo
) -> None:
    base = registry.reference(BASE)
    with CuttingServer(registry.host) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_address[1]}"
        with pytest.raises(RegistryError, match=rf"^{host} does not answer: {BROKEN}\.$"):
            publish(info, parse_reference(f"{host}/{repository}"), base)
        server.shutdown()
    assert server.has_cut
    check_that_nothing_is_left(registry, repository, info)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ModelDamagedError])
def test_an_upload_that_breaks_off_here_leaves_nothing(
    registry: RunningRegistry, repository: str, info: ModelInfo, monkeypatch: Any, error: type[BaseException]
) -> None:
    target, base = registry.reference(repository), registry.reference(BASE)

    def cut(_info: ModelInfo) -> Iterator[bytes]:
        yield WEIGHTS[:1_000_000]
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("farandole.registry.publish.pieces", cut)
        with pytest.raises(error):
            publish(info, target, base)
    check_that_nothing_is_left(registry, repository, info)
    assert publish(info, target, base).sent > len(WEIGHTS)


def test_a_registry_that_dies_in_an_upload_is_named(
    repository: str, info: ModelInfo, tmp_path: Path, monkeypatch: Any
) -> None:
    with running_registry(tmp_path / "registry") as registry:
        push_serving_image(registry.reference(BASE))

        def kill(_info: ModelInfo) -> Iterator[bytes]:
            yield WEIGHTS[:1_000_000]
            os.kill(registry.pid, signal.SIGKILL)
            yield WEIGHTS[1_000_000:]

        monkeypatch.setattr("farandole.registry.publish.pieces", kill)
        with pytest.raises(RegistryError, match=rf"^{registry.host} does not answer: {BROKEN}\.$"):
            publish(info, registry.reference(repository), registry.reference(BASE))


def test_a_registry_that_does_not_answer_is_named_with_the_reason(
    registry: RunningRegistry, repository: str, info: ModelInfo, monkeypatch: Any
) -> None:
    base = registry.reference(BASE)
    unknown = "(Name or service not known|Temporary failure in name resolution)"
    for host, why in {"127.0.0.1:9": "Connection refused", "no.invalid": unknown}.items():
        with pytest.raises(RegistryError, match=rf"^{host} does not answer: {why}\.$"):
            publish(info, parse_reference(f"http://{host}/{repository}"), base)
    monkeypatch.setattr(transport, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryError, match=rf"^{host} does not answer: nothing came within 0\.2 seconds\.$"):
            publish(info, parse_reference(f"{host}/{repository}"), base)
    with pytest.raises(RegistryError, match=rf"^{registry.host} has no TLS, or no certificate that is trusted here"):
        publish(info, replace(registry.reference(repository), scheme="https"), base)
