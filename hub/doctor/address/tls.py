"""Check the hub's certificate: with the service `tls` its files, otherwise the certificate that browsers receive."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hub.doctor.address.certificate import (
    CERTIFICATE,
    KEY,
    USER,
    CertificateError,
    check_pair,
    expires,
    local_text,
    readable_by,
    uncovered,
)
from hub.doctor.finding import Finding, fault, ok, warning
from spawner_config.origins.compose import HTTPS_PORT
from spawner_config.origins.hosts import DEFAULT_DOMAIN, host_label, is_domain, is_local
from spawner_config.settings import read_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hub.doctor.deployment import Deployment

CHECK = "certificate"
SOON = timedelta(days=21)
CONNECT_SECONDS = 30.0
"""The time limit in seconds for a connection, during which Caddy may first have to obtain a certificate."""


def check_tls(deployment: Deployment) -> Finding:
    """Check the files of the compose profile `tls` if it is enabled, otherwise the certificate at the hub's address."""
    users = deployment.get("FARANDOLE_ORIGINS") != "one"
    domain = deployment.get("FARANDOLE_DOMAIN") or (DEFAULT_DOMAIN if users else "")
    if "tls" in deployment.profiles:
        return judge_folder(deployment.path("FARANDOLE_TLS_FOLDER"), domain=domain, users=users)
    if deployment.get("FARANDOLE_HTTPS") != "yes" and "caddy" not in deployment.profiles:
        return ok(CHECK, "not needed, since .env sets up no HTTPS")
    if not is_domain(domain) or is_local(domain):
        return ok(CHECK, "not checked, since FARANDOLE_DOMAIN is not a name by which other machines can reach the hub")
    # The hub always has a user with the administrator's name, so Caddy gets a certificate for this host too.
    admin = f"{host_label(deployment.get('FARANDOLE_ADMIN').lower())}.{domain}"
    port = read_port(deployment.get("FARANDOLE_PUBLIC_PORT")) or HTTPS_PORT
    return judge_hosts([domain, admin] if users else [domain], port, ssl.create_default_context())


def judge_hosts(hosts: Sequence[str], port: int, context: ssl.SSLContext) -> Finding:
    """Connect to ``hosts``, and check that the certificate of each host is valid for it."""
    for host in hosts:
        try:
            with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
                context.wrap_socket(connection, server_hostname=host).close()
        except ssl.SSLCertVerificationError as exc:
            return fault(
                CHECK,
                f"The certificate at https://{host}:{port} is refused: {exc.verify_message.rstrip('.')}.",
                "Give the server in front of the hub a certificate for the hub's host and all names below it.\n"
                "If the certificate is from your own authority, add the authority's certificate to this machine.",
            )
        except OSError as exc:
            return warning(
                CHECK,
                f"https://{host}:{port} does not answer ({exc}): its certificate cannot be checked.",
                "Start the hub and the server in front of it, and run this again. Or open the address in a browser, if "
                "only other machines reach it.",
            )
    return ok(CHECK, f"valid for {' and '.join(hosts)}")


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
        return warning(CHECK, f"{folder / CERTIFICATE} ends at {local_text(end)}.", "Replace it in time.")
    return ok(CHECK, f"{folder / CERTIFICATE} is valid until {local_text(end)}")
