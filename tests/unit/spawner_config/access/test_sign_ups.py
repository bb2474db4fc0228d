from __future__ import annotations

import pytest

from spawner_config.access.sign_ups import SignUps, sender_of


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
