"""Tests for the signed claims of operators, accounts and users."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import nkeys
import pytest

from spawner_config.streams.claims import (
    Account,
    account_claims,
    credentials,
    deletion_claims,
    operator_claims,
    system_account_claims,
)
from spawner_config.streams.keys import Keys

KEYS = Keys("0123456789abcdef" * 4)
ADA = Account(key=KEYS.account("ada"), name="Ada Lovelace, zoë", disk=1 << 30)


def decoded(part: str) -> bytes:
    assert "=" not in part
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def opened(token: str, seed: str) -> dict[str, Any]:
    """Return the claims of a token after checking its header, its signature and its id."""
    head, body, signature = token.split(".")
    assert json.loads(decoded(head)) == {"typ": "JWT", "alg": "ed25519-nkey"}
    assert nkeys.from_seed(seed.encode()).verify(f"{head}.{body}".encode(), decoded(signature))
    claims = json.loads(decoded(body))
    number = claims.pop("jti")
    text = json.dumps(claims, separators=(",", ":"), sort_keys=True).encode()
    assert number == base64.b32encode(hashlib.new("sha512_256", text).digest()).decode().rstrip("=")
    return claims


def test_the_operator_signs_itself_and_names_the_system_account() -> None:
    claims = opened(operator_claims(KEYS), KEYS.operator.seed)
    assert claims["iss"] == claims["sub"] == KEYS.operator.public
    assert claims["nats"] == {"type": "operator", "version": 2, "system_account": KEYS.system.public}


def test_an_account_has_limits_and_shares_nothing() -> None:
    claims = opened(account_claims(KEYS, ADA), KEYS.operator.seed)
    assert (claims["iss"], claims["sub"], claims["name"]) == (KEYS.operator.public, ADA.key.public, ADA.name)
    limits = claims["nats"].pop("limits")
    assert claims["nats"] == {"type": "account", "version": 2}
    assert (limits["disk_storage"], limits["mem_storage"]) == (1 << 30, 0)
    assert (limits["imports"], limits["exports"], limits["leaf"]) == (0, 0, 0)
    assert min(limits[key] for key in ("conn", "subs", "streams", "consumer")) > 0


def test_the_system_account_has_no_streams() -> None:
    claims = opened(system_account_claims(KEYS), KEYS.operator.seed)
    assert claims["sub"] == KEYS.system.public
    assert claims["nats"]["limits"]["disk_storage"] == claims["nats"]["limits"]["mem_storage"] == 0


def test_the_system_account_serves_nothing_that_deletes_or_fills_the_disk() -> None:
    claims = opened(system_account_claims(KEYS), KEYS.operator.seed)
    assert claims["nats"]["mappings"] == {
        "$JS.API.ACCOUNT.PURGE.*": [{"subject": "refused.$1", "weight": 100}],
        "$JS.API.STREAM.RESTORE.*": [{"subject": "refused.$1", "weight": 100}],
    }


def test_a_deletion_is_signed_by_the_operator_for_itself() -> None:
    claims = opened(deletion_claims(KEYS, [ADA.key.public]), KEYS.operator.seed)
    assert claims["iss"] == claims["sub"] == KEYS.operator.public
    assert claims["nats"] == {"type": "generic", "version": 2, "accounts": [ADA.key.public]}


def test_credentials_are_those_of_a_user_without_an_end() -> None:
    user = KEYS.user("ada")
    lines = credentials(ADA.key, user, ADA.name).splitlines()
    assert lines[0] == "-----BEGIN NATS USER JWT-----"
    assert lines[2] == "------END NATS USER JWT------"
    assert lines[4:] == ["-----BEGIN USER NKEY SEED-----", user.seed, "------END USER NKEY SEED------"]
    claims = opened(lines[1], ADA.key.seed)
    assert (claims["iss"], claims["sub"]) == (ADA.key.public, user.public)
    assert "exp" not in claims
    assert claims["nats"]["type"] == "user"


@pytest.mark.parametrize("secret", ["account", "operator"])
def test_credentials_do_not_contain_the_keys_that_sign(secret: str) -> None:
    key = {"account": ADA.key, "operator": KEYS.operator}[secret]
    assert key.seed not in credentials(ADA.key, KEYS.user("ada"), ADA.name)
