"""Tests for the ports of the deployment without containers."""

import socket
from pathlib import Path

from spawner_config.local import free_port

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The first and the last port that this machine gives to outgoing connections."""


def test_no_outgoing_connection_takes_a_free_port_before_it_is_used():
    first, last = map(int, OUTGOING.read_text().split())
    ports = {free_port() for _ in range(50)}
    assert len(ports) > 40
    assert not [port for port in ports if first <= port <= last]
    with socket.create_server(("127.0.0.1", ports.pop())) as server:
        assert server.getsockname()[0] == "127.0.0.1"
