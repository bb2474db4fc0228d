"""The signed claims (JSON web tokens) by which a NATS server knows operators, accounts and users.

Source: https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawner_config.streams.keys import Key, Keys

HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
VERSION = 2
NO_LIMIT = -1
CONNECTIONS, SUBSCRIPTIONS = 256, 1000
"""What each user may have open, so that no user takes the memory of all others: connections, and subscriptions of each.

A NATS server counts the subscriptions of each connection separately, and needs about 0.6 KiB for one.
"""
STREAMS, CONSUMERS = 100, 50
"""What each user may create: streams, and consumers of each stream.

A NATS server counts the consumers of each stream separately. It needs about 45 KiB for one, also after a restart.
"""
REFUSED = ("$JS.API.ACCOUNT.PURGE.*", "$JS.API.STREAM.RESTORE.*")
"""Subjects of JetStream's API that no account may use.

- The first one deletes the streams of any account, and should be for operators only, but NATS servers before 2.10.27
  answer all accounts (CVE-2025-30215). It also removes the files of all accounts if a consumer sends the request.
- The second one ignores the disk limit of the account.
"""


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of a user: its key, the user's name, and how many bytes its streams may have on disk."""

    key: Key
    name: str
    disk: int


def operator_claims(keys: Keys) -> str:
    """Return the operator's own claims, which name the system account."""
    return _signed(
        keys.operator, keys.operator.public, "Farandole", {"type": "operator", "system_account": keys.system.public}
    )


def system_account_claims(keys: Keys) -> str:
    """Return the claims of the system account, which has no streams and blocks the subjects in `REFUSED`.

    Requests of all accounts to JetStream go through the system account, where its mapping applies to them, whether a
    client sends them or the server itself does, as an answer or by a consumer. Permissions apply to clients only.
    """
    # A mapping needs all wildcards of the subject, so `$1` has to be there.
    mappings = {subject: [{"subject": "refused.$1", "weight": 100}] for subject in REFUSED}
    found = {"type": "account", "limits": _limits(disk=0), "mappings": mappings}
    return _signed(keys.operator, keys.system.public, "system", found)


def account_claims(keys: Keys, account: Account) -> str:
    """Return the claims of a user's account, which shares nothing with other accounts."""
    found = {"type": "account", "limits": _limits(disk=account.disk)}
    return _signed(keys.operator, account.key.public, account.name, found)


def deletion_claims(keys: Keys, accounts: Sequence[str]) -> str:
    """Return the operator's request to delete the accounts with these public keys."""
    found = {"type": "generic", "accounts": list(accounts)}
    return _signed(keys.operator, keys.operator.public, "delete", found)


def credentials(account: Key, user: Key, name: str) -> str:
    """Return the content of a file of credentials (``.creds``), which is valid as long as the account exists."""
    found = {"type": "user", "pub": {}, "sub": {}, "subs": NO_LIMIT, "data": NO_LIMIT, "payload": NO_LIMIT}
    claims = _signed(account, user.public, name, found)
    return (
        f"-----BEGIN NATS USER JWT-----\n{claims}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def _limits(*, disk: int) -> dict[str, int | bool]:
    """Return an account's limits. Streams are only on disk, and connections only those of programs."""
    streams = {"mem_storage": 0, "disk_storage": disk, "streams": STREAMS, "consumer": CONSUMERS}
    shared = {"imports": 0, "exports": 0, "wildcards": True, "leaf": 0}
    traffic = {"subs": SUBSCRIPTIONS, "data": NO_LIMIT, "payload": NO_LIMIT, "conn": CONNECTIONS}
    return {**streams, **shared, **traffic}


def _signed(issuer: Key, subject: str, name: str, found: dict[str, Any]) -> str:
    claims = {
        "iat": int(time.time()),
        "iss": issuer.public,
        "name": name,
        "sub": subject,
        "nats": {**found, "version": VERSION},
    }
    digest = hashlib.new("sha512_256", _json(claims)).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    content = f"{_text(_json(HEADER))}.{_text(_json(claims))}"
    return f"{content}.{_text(issuer.sign(content.encode()))}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
