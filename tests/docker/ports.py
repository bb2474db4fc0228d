"""Choose ports for services that open them minutes later, or again after a restart."""

from __future__ import annotations

import random
import socket

HTTP, HTTPS = range(20_000, 26_000), range(26_000, 32_000)
"""Port ranges below 32768, where the system's range for outgoing connections begins. Ports are chosen at random,
because several tests may choose one before any of them opens it."""


def quiet_port(among: range) -> int:
    """Return a port in the range ``among`` on which nothing listens.

    Raises OSError if a hundred random ports are all in use.
    """
    for port in random.sample(among, 100):
        with socket.socket() as listener:
            # Servers also set this option, so that recently closed connections do not block the port.
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
