"""Checks that browsers send passwords and cookies to a hub in containers only over encrypted connections.

This module imports only the standard library, because `make doctor` runs before any package is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spawner_config.origins.compose import https_in_front, is_loopback
from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

INSECURE = "insecure"
HSTS = "max-age=31536000"
"""The Strict-Transport-Security header: after a visit over HTTPS, browsers refuse plain HTTP to its host for one
year."""
REMEDY = (
    "Set FARANDOLE_BIND=127.0.0.1 and COMPOSE_PROFILES=tls or caddy; or FARANDOLE_HTTPS=yes if another machine in "
    f"front of this one speaks HTTPS; or FARANDOLE_HTTP={INSECURE} if you trust everybody on that network."
)


def check_transport(environ: Mapping[str, str]) -> None:
    """Raise `SettingsError` if other machines can reach the hub without HTTPS, unless FARANDOLE_HTTP allows this."""
    word = environ.get("FARANDOLE_HTTP") or ""
    if word not in {"", INSECURE}:
        raise SettingsError(f"FARANDOLE_HTTP is {word!r}. It must be empty or {INSECURE}.")
    bind = environ.get("FARANDOLE_BIND") or "127.0.0.1"
    # The compose services that provide HTTPS do not count: they listen at other ports, and reach the hub's proxy over
    # the containers' network.
    if not (https_in_front(environ) or word or is_loopback(bind)):
        raise SettingsError(
            f"FARANDOLE_BIND is {bind!r} and there is no HTTPS: everybody on the network could read passwords. {REMEDY}"
        )
