"""Ports for what is published minutes after the port was chosen, or anew."""

from __future__ import annotations

import random
import socket

HTTP, HTTPS = range(20_000, 26_000), range(26_000, 32_000)
"""Below 32768, where the system takes the ports of clients' connections from; apart, as not all are taken at once."""


def quiet_port(among: range) -> int:
    """Return a port that nobody listens on now; raises OSError when that is true of none of a hundred."""
    for port in random.sample(among, 100):
        with socket.socket() as listener:
            # As a service does: connections that ended a minute ago are no hindrance.
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
