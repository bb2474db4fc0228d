"""How strong the secrets of `.env` must be: the hub refuses weak ones when it starts, `make doctor` before that.

Standard library only, since `make doctor` runs before anything is installed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

ADMIN_PASSWORD_LENGTH = 12
PASSWORD_BYTES = 72
"""What bcrypt takes."""
DISTINCT_CHARACTERS = 6
TOKEN = re.compile(r"[0-9a-fA-F]{64}")
EXAMPLES = {"openssl rand", "changeme", "password", "farandole", "jupyterhub", "administrator", "admin", "secret"}
"""What nobody may take for a secret, whatever digits and signs are around it."""
MAKE_PASSWORD = "Make one: openssl rand -base64 18"
MAKE_TOKEN = "Make one: openssl rand -hex 32"


def password_weakness(password: str) -> str | None:
    """Return what is wrong with a password that guards the whole hub, to be read behind "it"; None: nothing."""
    if len(password) < ADMIN_PASSWORD_LENGTH:
        return f"has {len(password)} characters, it needs {ADMIN_PASSWORD_LENGTH} or more"
    if len(password.encode()) > PASSWORD_BYTES:
        return f"has more than {PASSWORD_BYTES} bytes, which bcrypt does not take"
    if len(set(password)) < DISTINCT_CHARACTERS:
        return "repeats a few characters"
    words = re.sub(r"[^a-z ]", "", password.lower()).strip()
    if words in EXAMPLES or words.startswith("openssl rand"):
        return "is an example that everybody knows"
    return None


def token_weakness(token: str) -> str | None:
    """Return what is wrong with the token that hub and proxy share, to be read behind "it"; None: nothing."""
    if not TOKEN.fullmatch(token):
        return "is not 64 hexadecimal digits"
    return "repeats a few characters" if len(set(token)) < DISTINCT_CHARACTERS else None


def check_admin_password(password: str) -> None:
    """Raise `SettingsError` where the administrator's first password is weak."""
    weakness = password_weakness(password)
    if weakness:
        raise SettingsError(f"FARANDOLE_ADMIN_PASSWORD is too weak: it {weakness}. {MAKE_PASSWORD}")


def check_proxy_token(environ: Mapping[str, str], called: str = "FARANDOLE_PROXY_TOKEN") -> None:
    """Raise `SettingsError` where the token that hub and proxy were given is weak; ``called`` is what operators set."""
    weakness = token_weakness(environ.get("CONFIGPROXY_AUTH_TOKEN", ""))
    if weakness:
        raise SettingsError(f"{called} is too weak: it {weakness}. {MAKE_TOKEN}")
