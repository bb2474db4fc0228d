"""Check that the services' ports are free, and that no port is open to other machines without TLS."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hub.doctor.finding import Finding, fault, ok, warning
from spawner_config.access.transport import INSECURE, REMEDY, check_transport
from spawner_config.origins.hosts import DEFAULT_DOMAIN, is_local
from spawner_config.settings import SettingsError, read_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hub.doctor.deployment import Deployment
    from hub.doctor.engine import Engine

PROJECT_LABEL = "com.docker.compose.project"
EVERYWHERE = {"0.0.0.0", "::"}
CONNECT_SECONDS = 3.0
TRANSPORT = ("COMPOSE_PROFILES", "FARANDOLE_BIND", "FARANDOLE_HTTP", "FARANDOLE_HTTPS")


@dataclass(frozen=True, kw_only=True)
class WantedPort:
    """A port of this machine on which ``service`` listens; ``settings`` names the setting that configures it."""

    service: str
    address: str
    port: str
    settings: str

    @property
    def number(self) -> int | None:
        """The port as a number, or None if the setting is not valid."""
        return read_port(self.port)


def wanted_ports(deployment: Deployment) -> list[WantedPort]:
    """Return the ports that the services in the enabled compose profiles need."""
    get, profiles = deployment.get, deployment.profiles
    ports = [_wanted(deployment, "proxy", "FARANDOLE_BIND", "FARANDOLE_PORT")]
    if "tls" in profiles:
        ports.append(_wanted(deployment, "tls", "FARANDOLE_TLS_BIND", "FARANDOLE_TLS_PORT"))
    if "caddy" in profiles:
        ports += [WantedPort(service="caddy", address="0.0.0.0", port=port, settings="") for port in ("80", "443")]
    if "registry" in profiles:
        bind = get("FARANDOLE_REGISTRY_BIND")
        ports.append(WantedPort(service="registry", address=bind, port="5000", settings="FARANDOLE_REGISTRY_BIND"))
    return ports


def check_ports(deployment: Deployment, engine: Engine | None) -> Iterator[Finding]:
    """Yield a finding about each port; without an engine, containers are reported like other programs."""
    containers = engine.get("/containers/json") if engine else []
    seen: dict[int | None, str] = {}
    for wanted in wanted_ports(deployment):
        other = seen.setdefault(wanted.number, wanted.service)
        if other != wanted.service:
            yield fault("ports", f"{wanted.service} and {other} both want port {wanted.port}.", _move(wanted))
        else:
            yield _judge(wanted, containers, deployment.name)
    yield from _ipv6_twin(deployment)
    yield from _transport(deployment)


def _ipv6_twin(deployment: Deployment) -> Iterator[Finding]:
    """Yield a fault if another program uses the proxy's port on ::1.

    Browsers try ::1 first for names below localhost.
    """
    domain = deployment.get("FARANDOLE_DOMAIN") or DEFAULT_DOMAIN
    wanted = _wanted(deployment, "proxy", "FARANDOLE_BIND", "FARANDOLE_PORT")
    if not is_local(domain) or ":" in wanted.address or wanted.number is None:
        return
    if _cannot_listen("::1", wanted.number) == errno.EADDRINUSE:
        found = f"Another program uses port {wanted.port} of ::1. Browsers on this machine try it first for {domain}."
        yield fault("ports", found, _move(wanted))


def _transport(deployment: Deployment) -> Iterator[Finding]:
    """Yield a fault if passwords would be sent unencrypted, or a warning if the administrator has allowed this."""
    settings = {key: deployment.get(key) for key in TRANSPORT}
    try:
        check_transport(settings)
        check_transport({**settings, "FARANDOLE_HTTP": ""})
    except SettingsError as exc:
        found = str(exc).removesuffix(REMEDY).strip()
        yield (warning if settings["FARANDOLE_HTTP"] == INSECURE else fault)("ports", found, REMEDY)


def _wanted(deployment: Deployment, service: str, address: str, port: str) -> WantedPort:
    return WantedPort(service=service, address=deployment.get(address), port=deployment.get(port), settings=port)


def _judge(wanted: WantedPort, containers: Iterable[dict[str, Any]], project: str) -> Finding:
    if wanted.number is None:
        return fault("ports", f"{wanted.settings} is {wanted.port!r}.", "It must be a number from 1 to 65535.")
    where = f"port {wanted.port} of {wanted.address}"
    holder = _holder(wanted, containers)
    if holder:
        if (holder.get("Labels") or {}).get(PROJECT_LABEL) == project:
            return ok("ports", f"{where}, for {wanted.service}: used by this hub already")
        name = str(holder["Names"][0]).lstrip("/")
        return fault("ports", f"The container {name} uses {where}, which {wanted.service} needs.", _move(wanted))
    error = _cannot_listen(wanted.address, wanted.number)
    if error == errno.EADDRNOTAVAIL:
        return fault(
            "ports",
            f"{wanted.address}, at which {wanted.service} must listen, is not an address of this machine.",
            "Set an address that `ip address` lists, or 127.0.0.1.",
        )
    if error:
        return fault("ports", f"Another program uses {where}, which {wanted.service} needs.", _move(wanted))
    return ok("ports", f"{where}, for {wanted.service}: free")


def _move(wanted: WantedPort) -> str:
    end = f", or set {wanted.settings} in .env to another port." if wanted.settings.endswith("PORT") else "."
    return f"Find the program (sudo ss -ltnp 'sport = :{wanted.port}') and end it{end}"


def _holder(wanted: WantedPort, containers: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    for container in containers:
        for port in container.get("Ports") or []:
            addresses = {port.get("IP"), wanted.address}
            if port.get("PublicPort") == wanted.number and (len(addresses) == 1 or addresses & EVERYWHERE):
                return container
    return None


def _cannot_listen(address: str, port: int) -> int:
    """Try to listen on a port; return 0 on success, otherwise the error number."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen()
        except PermissionError:
            # This user may not open ports below 1024, so check whether a program answers on the port instead.
            return _answers(family, address, port)
        except OSError as exc:
            return exc.errno or errno.EADDRINUSE
    return 0


def _answers(family: socket.AddressFamily, address: str, port: int) -> int:
    with socket.socket(family) as client:
        client.settimeout(CONNECT_SECONDS)
        return errno.EADDRINUSE if client.connect_ex((address, port)) == 0 else 0
