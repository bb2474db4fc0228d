"""Whether passwords and cookies travel encrypted between browsers and a hub in containers.

Standard library only, since `make doctor` runs before anything is installed.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

HTTPS_PROFILES = {"tls", "caddy"}
"""The services of the compose file that speak HTTPS."""
INSECURE = "insecure"
HSTS = "max-age=31536000"
"""For a year, browsers that have seen the hub over HTTPS refuse to speak HTTP with it."""
REMEDY = (
    "Set FARANDOLE_BIND=127.0.0.1 and COMPOSE_PROFILES=tls or caddy; or FARANDOLE_HTTPS=yes if another machine in "
    f"front of this one speaks HTTPS; or FARANDOLE_HTTP={INSECURE} if you trust everybody on that network."
)


def has_https(environ: Mapping[str, str]) -> bool:
    """Return whether browsers speak HTTPS with the hub, through a service of the compose file or another one.

    Raises `SettingsError`.
    """
    word = environ.get("FARANDOLE_HTTPS") or "no"
    if word not in {"yes", "no"}:
        raise SettingsError(f"FARANDOLE_HTTPS is {word!r}. It must be yes or no.")
    profiles = (environ.get("COMPOSE_PROFILES") or "").replace(",", " ").split()
    return word == "yes" or not HTTPS_PROFILES.isdisjoint(profiles)


def check_transport(environ: Mapping[str, str]) -> None:
    """Raise `SettingsError` if other machines could reach the hub without HTTPS and no setting allows it."""
    word = environ.get("FARANDOLE_HTTP") or ""
    if word not in {"", INSECURE}:
        raise SettingsError(f"FARANDOLE_HTTP is {word!r}. It must be empty or {INSECURE}.")
    bind = environ.get("FARANDOLE_BIND") or "127.0.0.1"
    if not (has_https(environ) or word or _is_loopback(bind)):
        raise SettingsError(
            f"FARANDOLE_BIND is {bind!r} and there is no HTTPS: everybody on the network could read passwords. {REMEDY}"
        )


def _is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind.strip("[]")).is_loopback
    except ValueError:
        return bind == "localhost"
