from __future__ import annotations

import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest

from spawner_config.access.sign_ups import SignUps, client_address, sender_of


@pytest.mark.parametrize(
    ("address", "sender"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("", ""),
        ("@", "@"),
    ],
)
def test_a_customer_of_a_provider_is_one_sender(address: str, sender: str) -> None:
    assert sender_of(address) == sender


def test_accounts_that_wait_no_longer_are_forgotten() -> None:
    made = SignUps()
    for name in ("a", "b", "c"):
        made.add(name, "192.0.2.1")
    assert made.pending("192.0.2.1", {"a", "b"}) == 2
    assert made.pending("192.0.2.1", {"a", "b", "c"}) == 2


@pytest.mark.parametrize(
    ("forwarded", "servers", "address"),
    [
        ("192.0.2.66, 192.0.2.1,127.0.0.1", ["localhost"], "192.0.2.1"),
        ("192.0.2.1, 127.0.0.1", ["tls.invalid", "localhost"], "192.0.2.1"),
        # The last address, which the hub's proxy appended, is not that of a TLS server, so the client may have invented
        # all others.
        ("192.0.2.66, 127.0.0.1, 192.0.2.1", ["localhost"], "the proxy's client"),
        ("192.0.2.66, 192.0.2.1", ["localhost"], "the proxy's client"),
        ("192.0.2.1, 127.0.0.1", ["tls.invalid"], "the proxy's client"),
        ("192.0.2.1, 127.0.0.1", [], "the proxy's client"),
        # The header does not contain the address of a client of a TLS server.
        ("127.0.0.1", ["localhost"], "the proxy's client"),
        ("", ["localhost"], "the proxy's client"),
    ],
)
async def test_the_address_of_a_client_comes_from_the_tls_server_or_the_proxy(
    forwarded: str, servers: list[str], address: str
) -> None:
    request = HTTPServerRequest("POST", "/hub/signup", headers=HTTPHeaders({"X-Forwarded-For": forwarded}))
    request.remote_ip = "the proxy's client"
    assert await client_address(request, servers) == address
