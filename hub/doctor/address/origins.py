"""Check whether the hub and its users have separate hosts, and whether the names of these hosts resolve."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from hub.doctor.finding import Finding, fault, ok, warning
from spawner_config.origins.compose import DEFAULTS, open_to_others
from spawner_config.origins.hosts import DANGER, DEFAULT_DOMAIN, DOMAIN_WANTED, is_domain, is_local

if TYPE_CHECKING:
    from collections.abc import Callable

    from hub.doctor.deployment import Deployment

CHECK = "origins"
ANY_USER = "farandole-doctor"
"""A label for a host name below the hub's, to test whether the domain has a wildcard record."""


def check_origins(deployment: Deployment) -> Finding:
    """Check FARANDOLE_DOMAIN and FARANDOLE_ORIGINS, and whether the host names resolve."""
    domain = deployment.get("FARANDOLE_DOMAIN")
    open_by = open_to_others({key: deployment.get(key) for key in (*DEFAULTS, "COMPOSE_PROFILES")})
    if domain and not is_domain(domain):
        return fault(CHECK, f"FARANDOLE_DOMAIN is {domain!r}.", f"It must be {DOMAIN_WANTED}.")
    if deployment.get("FARANDOLE_ORIGINS") == "one":
        return warning(CHECK, DANGER, "Set FARANDOLE_ORIGINS=per-user and FARANDOLE_DOMAIN in .env.")
    if open_by and not domain:
        return fault(
            CHECK,
            f"FARANDOLE_DOMAIN is not set, and {open_by} lets other machines reach the hub: the hub does not start.",
            "Set FARANDOLE_DOMAIN in .env to the hub's host name. The host names of users are below it.",
        )
    return judge_names(domain or DEFAULT_DOMAIN)


def judge_names(domain: str, resolve: Callable[[str], set[str]] | None = None) -> Finding:
    """Check that the hub's host name and the names below it resolve to the same addresses."""
    if is_local(domain):
        return ok(CHECK, f"each user has a host below {domain}, which browsers resolve to their own machine")
    own, users = map(resolve or _addresses, (domain, f"{ANY_USER}.{domain}"))
    lacks = [name for name, found in ((domain, own), (f"*.{domain}", users)) if not found]
    if lacks:
        return fault(
            CHECK,
            f"This machine finds no address of {' and '.join(lacks)}.",
            f"Add records for {domain} and *.{domain} to your name server, with the address of the hub.",
        )
    if own != users:
        return warning(
            CHECK,
            f"{domain} leads to {', '.join(sorted(own))}, and *.{domain} to {', '.join(sorted(users))}.",
            "Both records must lead to the hub.",
        )
    return ok(CHECK, f"{domain} and *.{domain} lead to {', '.join(sorted(own))}")


def _addresses(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return set()
