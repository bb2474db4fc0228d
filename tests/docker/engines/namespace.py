"""A network namespace for a second engine, connected to this machine by a virtual cable (a veth pair).

Two engines cannot share a network namespace, because the second engine removes the bridge docker0 of the first, and
both write the same firewall chains.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

from tests.docker.engines.debian import run


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """The network namespace ``name``, which has at most 12 characters.

    ``cable`` is a network of four addresses, two of which are assigned to the ends of the cable.
    """

    name: str
    cable: IPv4Network

    @property
    def here(self) -> IPv4Interface:
        """The address of this machine's end of the cable."""
        return IPv4Interface(f"{self.cable[1]}/{self.cable.prefixlen}")

    @property
    def there(self) -> IPv4Interface:
        """The address of the engine's end of the cable, at which the ports that containers publish are reachable."""
        return IPv4Interface(f"{self.cable[2]}/{self.cable.prefixlen}")

    @property
    def enter(self) -> tuple[str, ...]:
        """The prefix of commands that run inside the namespace.

        The prefix does not use `ip netns exec`, which also gives each command its own mounts. An engine and its
        containerd must share their mounts.
        """
        return ("nsenter", f"--net=/run/netns/{self.name}")

    @property
    def exists(self) -> bool:
        """Whether the namespace exists."""
        return Path(f"/run/netns/{self.name}").exists()

    def make(self) -> None:
        """Create the namespace and the cable. Raises `SetUpError` if that fails."""
        outside, inside = self._ends
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.name)
        for options, end, address in ((), outside, self.here), (("-n", self.name), inside, self.there):
            run("ip", *options, "address", "add", str(address), "dev", end)
            run("ip", *options, "link", "set", end, "up")
        run("ip", "-n", self.name, "link", "set", "lo", "up")

    def lead_to(self, network: IPv4Network) -> None:
        """Let this machine reach the containers in a network of the engine, even on ports that they do not publish."""
        _, inside = self._ends
        run("ip", "route", "replace", str(network), "via", str(self.there.ip))
        run(*self.enter, "iptables", "-I", "DOCKER-USER", "-i", inside, "-j", "ACCEPT")

    def remove(self) -> None:
        """Remove the namespace, the cable and its routes."""
        outside, _ = self._ends
        if self.exists:
            subprocess.run(["ip", "link", "delete", outside], capture_output=True, check=False)
            run("ip", "netns", "delete", self.name)

    @property
    def _ends(self) -> tuple[str, str]:
        return f"{self.name}-a", f"{self.name}-b"
