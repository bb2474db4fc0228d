"""Rules for the secrets in `.env`. `make doctor` checks them, and the hub checks them again when it starts.

This module imports only the standard library, because `make doctor` runs before any package is installed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

ADMIN_PASSWORD_LENGTH = 12
PASSWORD_BYTES = 72
"""The length in bytes of the longest password that bcrypt accepts."""
DISTINCT_CHARACTERS = 6
TOKEN = re.compile(r"[0-9a-fA-F]{64}")
EXAMPLES = {"openssl rand", "changeme", "password", "farandole", "jupyterhub", "administrator", "admin", "secret"}
"""Well-known words. A password that is one of them is refused, even if it also has digits and punctuation."""
MAKE_PASSWORD = "Make one: openssl rand -base64 18"
MAKE_TOKEN = "Make one: openssl rand -hex 32"


def password_weakness(password: str) -> str | None:
    """Return why the administrator's password is weak, as a phrase that continues "it ..."; None if it is strong."""
    if len(password) < ADMIN_PASSWORD_LENGTH:
        return f"has {len(password)} characters and needs {ADMIN_PASSWORD_LENGTH} or more"
    if len(password.encode()) > PASSWORD_BYTES:
        return f"has more than {PASSWORD_BYTES} bytes, which bcrypt does not accept"
    if len(set(password)) < DISTINCT_CHARACTERS:
        return "repeats a few characters"
    words = re.sub(r"[^a-z ]", "", password.lower()).strip()
    if words in EXAMPLES or words.startswith("openssl rand"):
        return "is an example that everybody knows"
    return None


def token_weakness(token: str) -> str | None:
    """Return why the proxy's token is weak, as a phrase that continues "it ..."; None if it is strong."""
    if not TOKEN.fullmatch(token):
        return "is not 64 hexadecimal digits"
    return "repeats a few characters" if len(set(token)) < DISTINCT_CHARACTERS else None


def check_admin_password(password: str) -> None:
    """Raise `SettingsError` if the first administrator's initial password is weak."""
    weakness = password_weakness(password)
    if weakness:
        raise SettingsError(f"FARANDOLE_ADMIN_PASSWORD is too weak: it {weakness}. {MAKE_PASSWORD}")


def check_proxy_token(environ: Mapping[str, str], called: str = "FARANDOLE_PROXY_TOKEN") -> None:
    """Raise `SettingsError` if the proxy's token is weak; ``called`` is the token's name in the message."""
    weakness = token_weakness(environ.get("CONFIGPROXY_AUTH_TOKEN", ""))
    if weakness:
        raise SettingsError(f"{called} is too weak: it {weakness}. {MAKE_TOKEN}")
