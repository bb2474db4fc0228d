"""The keys of the hub's NATS server, all of which are derived from one secret, so that nothing else has to be stored.

NATS identifies operators, accounts and users by Ed25519 keys in a text form, which the package nkeys writes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import nkeys
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SEED_BYTES = 32


class Keys:
    """The keys that belong to a secret. Each purpose has its own key, from which no other key can be derived."""

    def __init__(self, secret: str) -> None:
        """Derive the keys from a secret of 64 hexadecimal digits."""
        self._secret = bytes.fromhex(secret)

    @cached_property
    def operator(self) -> Key:
        """The key of the hub, which signs accounts. The server accepts no others."""
        return Key(self._seed("operator"), nkeys.PREFIX_BYTE_OPERATOR)

    @cached_property
    def system(self) -> Key:
        """The key of the account with which the hub changes the accounts of users."""
        return self.account("")

    @cached_property
    def authority(self) -> Ed25519PrivateKey:
        """The key that signs the server's certificates."""
        return Ed25519PrivateKey.from_private_bytes(self._seed("authority"))

    def account(self, owner: str) -> Key:
        """Return the key of the account of ``owner``, which is text that no two users of the hub share."""
        return Key(self._seed(f"account {owner}"), nkeys.PREFIX_BYTE_ACCOUNT)

    def user(self, owner: str) -> Key:
        """Return the key with which the programs of ``owner`` log in to the account."""
        return Key(self._seed(f"user {owner}"), nkeys.PREFIX_BYTE_USER)

    def _seed(self, purpose: str) -> bytes:
        return HKDF(SHA256(), SEED_BYTES, salt=None, info=f"farandole streams: {purpose}".encode()).derive(self._secret)


class Key:
    """An Ed25519 key in the text form of NATS."""

    def __init__(self, seed: bytes, kind: int) -> None:
        """Use a seed of `SEED_BYTES` for a key of a ``kind``, one of the prefixes of nkeys."""
        self._seed: bytes = nkeys.encode_seed(seed, kind)
        self._pair: Any = nkeys.from_seed(self._seed)

    @property
    def public(self) -> str:
        """The public key, whose first letter shows its kind."""
        return str(self._pair.public_key.decode())

    @property
    def seed(self) -> str:
        """The private key."""
        return self._seed.decode()

    def sign(self, content: bytes) -> bytes:
        """Return the signature of the content."""
        return bytes(self._pair.sign(content))
