"""Tests for the configuration and the certificate of the hub's NATS server."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from spawner_config.streams.certificates import authority_certificate, server_certificate
from spawner_config.streams.keys import Keys
from spawner_config.streams.server_config import ServerPlace

if TYPE_CHECKING:
    from pathlib import Path

KEYS, OTHERS = Keys("0123456789abcdef" * 4), Keys("fedcba9876543210" * 4)


def written(folder: Path, *names: str) -> dict[str, object]:
    place = ServerPlace(folder=folder / "nats", listen="127.0.0.1:4222", names=names)
    place.make()
    return json.loads(place.write(KEYS).read_text(encoding="utf-8"))


def test_only_the_owner_reads_the_files_and_none_has_a_key_that_signs(tmp_path: Path) -> None:
    written(tmp_path, "streams")
    found = list((tmp_path / "nats").iterdir())
    assert {path.name for path in found} == {"nats-server.conf", "tls.crt", "tls.key"}
    for path in found:
        assert path.stat().st_mode & 0o077 == 0
        assert KEYS.operator.seed not in path.read_text()
        assert KEYS.system.seed not in path.read_text()
    assert (tmp_path / "nats").stat().st_mode & 0o777 == 0o700


def test_a_file_with_another_mode_is_replaced(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "nats" / "nats-server.conf"
    path.chmod(0o644)
    written(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_port_is_open_besides_that_of_clients(tmp_path: Path) -> None:
    found = written(tmp_path)
    assert found["listen"] == "127.0.0.1:4222"
    assert found.keys().isdisjoint(
        {"http", "http_port", "https", "https_port", "cluster", "leafnodes", "gateway", "websocket", "mqtt"}
    )
    assert "tls" not in found


def test_the_limits_of_all_users_together_may_exceed_the_disk(tmp_path: Path) -> None:
    assert written(tmp_path)["jetstream"]["max_file_store"] > 1_000_000 << 30


def test_a_folder_may_have_characters_that_the_syntax_of_the_configuration_cannot_escape(tmp_path: Path) -> None:
    folder = tmp_path / "josé 🚀"
    written(folder)
    text = (folder / "nats" / "nats-server.conf").read_text(encoding="utf-8")
    assert str(folder) in text
    assert "\\u" not in text


def handshake(names: tuple[str, ...], host: str, authority: str) -> None:
    """Connect to a server that has a certificate with these names. Raises SSLError if the client refuses it."""
    certificate, key = server_certificate(KEYS.authority, names)
    folder = os.memfd_create("certificate"), os.memfd_create("key")
    os.write(folder[0], certificate.encode())
    os.write(folder[1], key.encode())
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*(f"/proc/self/fd/{handle}" for handle in folder))
    for handle in folder:
        os.close(handle)
    near, far = socket.socketpair()
    thread = threading.Thread(target=_serve, args=(server, far))
    thread.start()
    try:
        with near, ssl.create_default_context(cadata=authority).wrap_socket(near, server_hostname=host):
            pass
    finally:
        thread.join(10)


def _serve(context: ssl.SSLContext, connection: socket.socket) -> None:
    try:
        with connection, context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)
    except ssl.SSLError:
        # The client has refused the certificate.
        return


@pytest.mark.parametrize("host", ["streams", "streams-api", "10.96.0.7", "fd00::7"])
def test_the_certificate_is_valid_for_its_names(host: str) -> None:
    # The hub and the server make a certificate of the authority each.
    handshake(("streams", "streams-api", "10.96.0.7", "fd00::7"), host, authority_certificate(KEYS.authority))


@pytest.mark.parametrize(("host", "keys"), [("proxy", KEYS), ("10.96.0.8", KEYS), ("streams", OTHERS)])
def test_other_names_and_authorities_are_refused(host: str, keys: Keys) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(("streams", "10.96.0.7"), host, authority_certificate(keys.authority))
