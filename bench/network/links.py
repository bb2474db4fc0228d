"""Hosts with slow links: network namespaces on a bridge, whose traffic is shaped in both directions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

BRIDGE = "fdbench"
"""The name of the bridge, and of the network namespace that it is in."""
NETWORK = IPv4Network("10.213.77.0/24")
HOSTS = Path("/etc/netns")
HERE = NETWORK[254]
"""The address of this machine on the bridge."""
CONGESTION_CONTROL = "cubic"
"""The default of Linux. BBR is slower on these links while both directions carry traffic."""
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


def host(number: int) -> str:
    """Return the name of the namespace of a host, counted from 0."""
    return f"{BRIDGE}{number}"


def address(number: int) -> IPv4Address:
    """Return the address of a host."""
    return NETWORK[number + 1]


@contextmanager
def slow_hosts(count: int, megabits: float) -> Iterator[None]:
    """Create hosts whose links carry this many megabits per second in each direction. Remove them in the end."""
    _remove(count)
    with ExitStack() as stack:
        stack.callback(_remove, count)
        # Docker makes this machine drop what one host on a bridge sends to another. Hence the bridge's own namespace.
        _run("ip", "netns", "add", BRIDGE)
        stack.enter_context(_allowed(CONGESTION_CONTROL))
        _run("ip", "-n", BRIDGE, "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "-n", BRIDGE, "link", "set", BRIDGE, "up")
        _plug(BRIDGE, "here")
        _run("ip", "address", "add", f"{HERE}/{NETWORK.prefixlen}", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for number in range(count):
            _connect(number, count, megabits)
        yield


@contextmanager
def _allowed(algorithm: str) -> Iterator[None]:
    """Allow network namespaces to select a congestion control algorithm, and restore the setting at the end."""
    before = ALLOWED.read_text(encoding="ascii")
    if algorithm in before.split():
        yield
        return
    ALLOWED.write_text(f"{before.strip()} {algorithm}", encoding="ascii")
    try:
        yield
    finally:
        ALLOWED.write_text(before, encoding="ascii")


def _connect(number: int, count: int, megabits: float) -> None:
    name = host(number)
    inside = ("ip", "-n", name)
    _run("ip", "netns", "add", name)
    # `ip netns exec` shows this file as /etc/hosts.
    names = HOSTS / name / "hosts"
    names.parent.mkdir(parents=True, exist_ok=True)
    lines = ["127.0.0.1 localhost", *(f"{address(each)} {host(each)}" for each in range(count))]
    names.write_text("\n".join([*lines, ""]), encoding="utf-8")
    _plug("eth0", name, netns=name)
    _run(*inside, "address", "add", f"{address(number)}/{NETWORK.prefixlen}", "dev", "eth0")
    _run(*inside, "link", "set", "eth0", "up")
    _run(*inside, "link", "set", "lo", "up")
    _run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={CONGESTION_CONTROL}")
    for place, device in ((BRIDGE, name), (name, "eth0")):
        _run(
            "tc",
            "-n",
            place,
            "qdisc",
            "add",
            "dev",
            device,
            "root",
            "tbf",
            "rate",
            f"{megabits:g}mbit",
            "burst",
            "128kb",
            "latency",
            "100ms",
        )


def _plug(device: str, port: str, *, netns: str = "") -> None:
    """Connect a new device, on this machine or in a namespace, to a port of the bridge."""
    inside = ("netns", netns) if netns else ()
    _run("ip", "link", "add", device, *inside, "type", "veth", "peer", "name", port, "netns", BRIDGE)
    _run("ip", "-n", BRIDGE, "link", "set", port, "master", BRIDGE, "up")


def _remove(count: int) -> None:
    for number in range(count):
        subprocess.run(["ip", "netns", "delete", host(number)], capture_output=True, check=False)
        shutil.rmtree(HOSTS / host(number), ignore_errors=True)
    for kind in ("link", "netns"):
        subprocess.run(["ip", kind, "delete", BRIDGE], capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"`{' '.join(command)}` failed: {done.stderr.strip()}. `make bench-network` needs root.")
