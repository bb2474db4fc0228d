from __future__ import annotations

import secrets

import pytest

from spawner_config.access.secret_rules import (
    check_admin_password,
    check_proxy_token,
    password_weakness,
    token_weakness,
)
from spawner_config.settings import SettingsError


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("elevenchars", "has 11 characters and needs 12"),
        ("x" * 80, "more than 72 bytes"),
        ("ababababababab", "repeats"),
        ("Password12345", "example"),
        ("change-me-2026", "example"),
        ("openssl rand -base64 18", "example"),
    ],
)
def test_a_weak_password_is_named_with_the_remedy(password: str, words: str) -> None:
    with pytest.raises(SettingsError, match=f"FARANDOLE_ADMIN_PASSWORD is too weak.*{words}.*openssl rand"):
        check_admin_password(password)


@pytest.mark.parametrize("token", ["", "0123", "z" * 64, "0" * 64, "ab" * 32, "0123456789abcdef" * 5])
def test_a_weak_token_is_named_with_the_remedy(token: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_PROXY_TOKEN is too weak.*openssl rand -hex 32"):
        check_proxy_token({"CONFIGPROXY_AUTH_TOKEN": token})
    with pytest.raises(SettingsError, match="^the Secret's token is too weak"):
        check_proxy_token({"CONFIGPROXY_AUTH_TOKEN": token}, "the Secret's token")


def test_secrets_of_openssl_are_strong() -> None:
    assert password_weakness(secrets.token_urlsafe(18)) is None
    assert password_weakness("a long enough one") is None
    assert token_weakness(secrets.token_hex(32)) is None
