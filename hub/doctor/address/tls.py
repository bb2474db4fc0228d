"""Check the certificate of the service `tls` on the machine, before the container needs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hub.doctor.address.certificate import (
    CERTIFICATE,
    KEY,
    USER,
    CertificateError,
    check_pair,
    expires,
    readable_by,
    uncovered,
)
from hub.doctor.finding import Finding, fault, ok, warning
from spawner_config.origins.hosts import DEFAULT_DOMAIN

if TYPE_CHECKING:
    from pathlib import Path

    from hub.doctor.deployment import Deployment

CHECK = "certificate"
SOON = timedelta(days=21)


def check_tls(deployment: Deployment) -> Finding:
    """Check the folder FARANDOLE_TLS_FOLDER, which is needed only with the compose profile `tls`."""
    if "tls" not in deployment.profiles:
        return ok(CHECK, "not needed, since COMPOSE_PROFILES does not have tls")
    users = deployment.get("FARANDOLE_ORIGINS") != "one"
    domain = deployment.get("FARANDOLE_DOMAIN") or (DEFAULT_DOMAIN if users else "")
    return judge_folder(deployment.path("FARANDOLE_TLS_FOLDER"), domain=domain, users=users)


def judge_folder(folder: Path, user: int = USER, *, domain: str = "", users: bool = False) -> Finding:
    """Check that the container, which runs as user id ``user`` and sees only this folder, can use the certificate.

    The certificate must cover ``domain``, if a domain is given, and with ``users`` also all hosts below the domain.
    """
    paths = (folder, folder / CERTIFICATE, folder / KEY)
    remedy = f"sudo chown -R {user} {folder} && sudo chmod -R u+rX {folder}"
    try:
        outside = [path for path in paths[1:] if not path.resolve().is_relative_to(folder.resolve())]
        unreadable = [path for path in paths if not readable_by(path, user)]
    except FileNotFoundError as exc:
        return fault(CHECK, f"There is no {exc.filename}.", f"Put {CERTIFICATE} and {KEY} in {folder}, then: {remedy}")
    except PermissionError as exc:
        return warning(CHECK, f"You may not read {exc.filename}.", "Run this as root.")
    if outside:
        names = ", ".join(map(str, outside))
        return fault(
            CHECK, f"{names} is a link out of its folder, which the container cannot follow.", "Copy the file."
        )
    if unreadable:
        return fault(CHECK, f"User id {user} of the container may not read {', '.join(map(str, unreadable))}.", remedy)
    return _judge_pair(folder, domain, users=users)


def _judge_pair(folder: Path, domain: str, *, users: bool) -> Finding:
    try:
        check_pair(folder)
        end = expires(folder)
        lacks = uncovered(folder, domain, users=users) if domain else []
    except CertificateError as exc:
        if isinstance(exc.__cause__, PermissionError):
            return warning(CHECK, f"You may not read {folder}: the key cannot be checked.", "Run this as root.")
        return fault(CHECK, str(exc), "Then restart the service: docker compose up -d")
    if lacks:
        return fault(
            CHECK,
            f"{folder / CERTIFICATE} is not for {' and '.join(lacks)}.",
            "Get a certificate for the hub's host and all names below it (a wildcard), or set COMPOSE_PROFILES=caddy.",
        )
    if end - datetime.now(UTC) < SOON:
        return warning(CHECK, f"{folder / CERTIFICATE} ends on {end:%Y-%m-%d}.", "Replace it before that day.")
    return ok(CHECK, f"{folder / CERTIFICATE} is valid until {end:%Y-%m-%d}")
