"""Check which addresses a program inside a container can reach."""

from __future__ import annotations

import json
import re
import socket
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from socket import AF_INET
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.clients.kernel import RemoteKernel
    from tests.docker.stack import Stack

Target = tuple[str, int]

PROBE_SECONDS = 180.0
# Connect to all targets at the same time, because each connection that a firewall drops takes the whole timeout.
PROBE = """
import json, socket
from concurrent.futures import ThreadPoolExecutor
def reach(target):
    try:
        with socket.create_connection(tuple(target), 4):
            return True
    except OSError:
        return False
targets = json.loads({targets!r})
with ThreadPoolExecutor(len(targets)) as pool:
    print("REACHED", json.dumps([target for target, there in zip(targets, pool.map(reach, targets)) if there]))
"""
LISTEN = """
import socket
listener = socket.socket()
listener.bind(("0.0.0.0", 45678))
listener.listen()
"""
LISTEN_PORT = 45678
"""A port that no service uses. Tests listen on it, because users must not reach each other's own programs."""


def reached(kernel: RemoteKernel, targets: Sequence[Target], *, rank: int | None = None) -> list[Target]:
    """Return the targets that accept a connection from a notebook's kernel or from one rank of its cluster."""
    magic = "" if rank is None else f"%%distributed --ranks {rank}\n"
    output = kernel.execute(magic + PROBE.format(targets=json.dumps(targets)).lstrip(), deadline=PROBE_SECONDS)
    found = re.search(r"REACHED (\[.*\])", output)
    assert found, output
    return [(host, port) for host, port in json.loads(found[1])]


def networks(stack: Stack, container: str) -> dict[str, str]:
    """Return the container's IP addresses, keyed by network name."""
    found = stack.inspect(container)["NetworkSettings"]["Networks"]
    return {name: network["IPAddress"] for name, network in found.items()}


def host_addresses(stack: Stack, container: str) -> list[str]:
    """Return the addresses of this machine and the usual gateway addresses of the container's networks."""
    own = [each.address for interface in psutil.net_if_addrs().values() for each in interface if each.family == AF_INET]
    ids = [each["NetworkID"] for each in stack.inspect(container)["NetworkSettings"]["Networks"].values()]
    configs = [json.loads(stack.docker("network", "inspect", each))[0]["IPAM"]["Config"] for each in ids]
    first = [str(next(IPv4Network(each["Subnet"]).hosts())) for config in configs for each in config]
    return sorted({address for address in own + first if not IPv4Address(address).is_loopback})


@contextmanager
def listening_host() -> Iterator[int]:
    """Listen on all addresses of this machine and yield the port."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        yield listener.getsockname()[1]
