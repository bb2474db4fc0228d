"""A network namespace for a second engine, with a cable to this machine.

Two engines cannot share a network namespace: the second removes the bridge docker0 of the first, and both write
the same firewall chains.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

from tests.docker.engines.debian import run


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """The namespace ``name`` (at most 12 characters); ``cable`` is a network of four addresses for both ends."""

    name: str
    cable: IPv4Network

    @property
    def here(self) -> IPv4Interface:
        """This machine's end of the cable."""
        return IPv4Interface(f"{self.cable[1]}/{self.cable.prefixlen}")

    @property
    def there(self) -> IPv4Interface:
        """The engine's end: ports that containers publish are at this address."""
        return IPv4Interface(f"{self.cable[2]}/{self.cable.prefixlen}")

    @property
    def enter(self) -> tuple[str, ...]:
        """The prefix of a command that is to run inside.

        Not `ip netns exec`, which changes the mounts as well: an engine and its containerd must share them.
        """
        return ("nsenter", f"--net=/run/netns/{self.name}")

    @property
    def exists(self) -> bool:
        """Return whether it exists."""
        return Path(f"/run/netns/{self.name}").exists()

    def make(self) -> None:
        """Create it; raises `SetUpError`."""
        outside, inside = self._ends
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.name)
        for options, end, address in ((), outside, self.here), (("-n", self.name), inside, self.there):
            run("ip", *options, "address", "add", str(address), "dev", end)
            run("ip", *options, "link", "set", end, "up")
        run("ip", "-n", self.name, "link", "set", "lo", "up")

    def lead_to(self, network: IPv4Network) -> None:
        """Let this machine reach containers in a network of the engine, on unpublished ports as well."""
        _, inside = self._ends
        run("ip", "route", "replace", str(network), "via", str(self.there.ip))
        run(*self.enter, "iptables", "-I", "DOCKER-USER", "-i", inside, "-j", "ACCEPT")

    def remove(self) -> None:
        """Remove it with its cable and routes."""
        outside, _ = self._ends
        if self.exists:
            subprocess.run(["ip", "link", "delete", outside], capture_output=True, check=False)
            run("ip", "netns", "delete", self.name)

    @property
    def _ends(self) -> tuple[str, str]:
        return f"{self.name}-a", f"{self.name}-b"
