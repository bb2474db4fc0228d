"""Tests of the certificate of a Dask cluster. The contract tests connect with it, and without it."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from distributed import Security
from farandole.driver.data.certificate import credentials, new_security


def handshake(client, server):
    """Connect the two sides in memory; raises ssl.SSLError if one of them refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    first = client.wrap_bio(to_client, to_server, server_side=False)
    second = server.wrap_bio(to_server, to_client, server_side=True)
    for step in (first.do_handshake, second.do_handshake, first.do_handshake, second.do_handshake):
        try:
            step()
        except ssl.SSLWantReadError:
            continue
    first.write(b"hello")
    return second.read()


def client_of(security):
    return security.get_connection_args("client")["ssl_context"]


def server_of(security):
    return security.get_listen_args("scheduler")["ssl_context"]


def test_both_sides_have_the_certificate():
    security = new_security()
    assert handshake(client_of(security), server_of(security)) == b"hello"
    same = Security(require_encryption=True, **credentials(security))
    assert handshake(client_of(same), server_of(security)) == b"hello"
    assert security.require_encryption


@pytest.mark.parametrize("other", [new_security, Security.temporary])
def test_each_side_refuses_another_certificate(other):
    security, foreign = new_security(), other()
    with pytest.raises(ssl.SSLError):
        handshake(client_of(foreign), server_of(security))
    with pytest.raises(ssl.SSLError):
        handshake(client_of(security), server_of(foreign))


def test_a_machine_whose_clock_is_behind_accepts_it():
    certificate = x509.load_pem_x509_certificate(new_security().tls_ca_file.encode())
    assert certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=23)
    assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=364)


def test_each_key_is_new_and_in_memory_only():
    first, second = new_security(), new_security()
    assert first.tls_worker_key != second.tls_worker_key
    assert first.tls_worker_key.startswith("-----BEGIN PRIVATE KEY-----\n")
    assert "PRIVATE" not in repr(first)
