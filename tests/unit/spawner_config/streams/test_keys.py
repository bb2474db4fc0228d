"""Tests for the keys of the hub's NATS server."""

from __future__ import annotations

import nkeys

from spawner_config.streams.keys import Keys

SECRET, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4
ACCOUNT = "AD2XSJFR6M7JZC4WNM4HATLTACXZHO6HYPDV2SVNTN2NLSJ7O3CMDTBV"
OPERATOR = "OA2YVHC6I7OI7G4XOC6P44PIGOYOUXMGMAC6LOACHOPU22735ZLA2EC5"


def public_keys(secret: str) -> list[str]:
    keys = Keys(secret)
    found = [keys.operator, keys.system, keys.account("ada"), keys.account("bob"), keys.user("ada"), keys.user("bob")]
    return [key.public for key in found]


def test_the_same_secret_gives_the_same_keys() -> None:
    assert public_keys(SECRET) == public_keys(SECRET)


def test_each_purpose_and_each_secret_has_other_keys() -> None:
    found = [*public_keys(SECRET), *public_keys(OTHER)]
    # The first letter is the kind, so compare the rest.
    assert len({key[1:] for key in found}) == len(found)
    assert [key[0] for key in public_keys(SECRET)] == list("OAAAUU")


def test_a_later_version_derives_the_same_keys() -> None:
    # Streams of users would be lost if this changed.
    assert Keys(SECRET).account("1 2026-01-01T00:00:00+00:00").public == ACCOUNT
    assert Keys(SECRET).operator.public == OPERATOR


def test_a_signature_is_verified_by_the_public_key() -> None:
    key = Keys(SECRET).user("ada")
    pair = nkeys.from_seed(key.seed.encode())
    assert pair.public_key.decode() == key.public
    assert pair.verify(b"content", key.sign(b"content"))
