"""Ports for services that publish them minutes after the choice, or again after a restart."""

from __future__ import annotations

import random
import socket

HTTP, HTTPS = range(20_000, 26_000), range(26_000, 32_000)
"""Below 32768, where the system takes ports for clients' connections; random, as tests choose before they use them."""


def quiet_port(among: range) -> int:
    """Return a port without a listener; raises OSError if a hundred ports are in use."""
    for port in random.sample(among, 100):
        with socket.socket() as listener:
            # Servers set this too, so that recently closed connections do not block the port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not _refused(listener, port):
                return port
    raise OSError(f"None of a hundred ports from {among.start} to {among.stop} is free.")


def _refused(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind(("0.0.0.0", port))
    except OSError:
        return True
    return False
