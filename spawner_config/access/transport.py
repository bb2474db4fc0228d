"""Checks that passwords and cookies travel encrypted between browsers and a hub in containers.

Standard library only, since `make doctor` runs before anything is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spawner_config.origins.compose import has_https, is_loopback
from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

INSECURE = "insecure"
HSTS = "max-age=31536000"
"""Browsers that have reached the hub over HTTPS refuse plain HTTP to it for a year."""
REMEDY = (
    "Set FARANDOLE_BIND=127.0.0.1 and COMPOSE_PROFILES=tls or caddy; or FARANDOLE_HTTPS=yes if another machine in "
    f"front of this one speaks HTTPS; or FARANDOLE_HTTP={INSECURE} if you trust everybody on that network."
)


def check_transport(environ: Mapping[str, str]) -> None:
    """Raise `SettingsError` if other machines could reach the hub without HTTPS and no setting allows it."""
    word = environ.get("FARANDOLE_HTTP") or ""
    if word not in {"", INSECURE}:
        raise SettingsError(f"FARANDOLE_HTTP is {word!r}. It must be empty or {INSECURE}.")
    bind = environ.get("FARANDOLE_BIND") or "127.0.0.1"
    if not (has_https(environ) or word or is_loopback(bind)):
        raise SettingsError(
            f"FARANDOLE_BIND is {bind!r} and there is no HTTPS: everybody on the network could read passwords. {REMEDY}"
        )
