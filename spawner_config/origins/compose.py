"""Derives the public address of a hub in containers from the services that compose runs in front of the hub.

This module imports only the standard library, because `make doctor` uses it on machines without any packages.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from spawner_config.settings import SettingsError, read_port

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS = {
    "FARANDOLE_BIND": "127.0.0.1",
    "FARANDOLE_HTTPS": "no",
    "FARANDOLE_PORT": "8000",
    "FARANDOLE_TLS_BIND": "0.0.0.0",
    "FARANDOLE_TLS_PORT": "443",
}
"""The default values of docker-compose.yml."""
HTTPS_PROFILES = {"tls", "caddy"}
"""The compose profiles whose services provide HTTPS."""
HTTPS_PORT = 443


def profiles(environ: Mapping[str, str]) -> set[str]:
    """Return the compose profiles that COMPOSE_PROFILES enables."""
    return set(environ.get("COMPOSE_PROFILES", "").replace(",", " ").split())


def has_https(environ: Mapping[str, str]) -> bool:
    """Return whether browsers use HTTPS, provided by a compose service or by another server in front of the hub.

    Raises `SettingsError`.
    """
    return https_in_front(environ) or not HTTPS_PROFILES.isdisjoint(profiles(environ))


def https_in_front(environ: Mapping[str, str]) -> bool:
    """Return whether a server that is not a compose service provides HTTPS; raises `SettingsError`."""
    word = _get(environ, "FARANDOLE_HTTPS")
    if word not in {"yes", "no"}:
        raise SettingsError(f"FARANDOLE_HTTPS is {word!r}. It must be yes or no.")
    return word == "yes"


def public_port(environ: Mapping[str, str]) -> int:
    """Return the port on which browsers reach the hub; raises `SettingsError`."""
    if environ.get("FARANDOLE_PUBLIC_PORT"):
        return _port(environ, "FARANDOLE_PUBLIC_PORT")
    if "tls" in profiles(environ):
        return _port(environ, "FARANDOLE_TLS_PORT")
    return HTTPS_PORT if has_https(environ) else _port(environ, "FARANDOLE_PORT")


def open_to_others(environ: Mapping[str, str]) -> str:
    """Return the setting that lets other machines reach the hub, or an empty string if there is none."""
    services = profiles(environ)
    if "caddy" in services:
        return "COMPOSE_PROFILES=caddy"
    binds = ["FARANDOLE_BIND", *(["FARANDOLE_TLS_BIND"] if "tls" in services else [])]
    if opened := [f"{key}={_get(environ, key)}" for key in binds if not is_loopback(_get(environ, key))]:
        return opened[0]
    # The server in front of the hub may be on this machine. FARANDOLE_BIND then does not limit who can reach that
    # server.
    in_front = https_in_front(environ) and HTTPS_PROFILES.isdisjoint(services)
    return "FARANDOLE_HTTPS=yes" if in_front else ""


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address; IPv6 addresses may be in brackets, as compose requires."""
    try:
        return ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost"


def _get(environ: Mapping[str, str], key: str) -> str:
    return environ.get(key) or DEFAULTS.get(key, "")


def _port(environ: Mapping[str, str], key: str) -> int:
    port = read_port(_get(environ, key))
    if port is None:
        raise SettingsError(f"{key} is {_get(environ, key)!r}. It must be a number from 1 to 65535.")
    return port
