"""`python -m hub.services.streams.health PORT`: fail if the NATS server of this container does not answer.

It begins an encrypted connection, because the NATS server logs an error for each connection that is none.
"""

from __future__ import annotations

import socket
import ssl
import sys

SECONDS = 3.0
GREETING = b"INFO "
LONGEST_GREETING = 1 << 16


def check(port: int) -> None:
    """Raise OSError if there is no NATS server with TLS at this port."""
    context = ssl.create_default_context()
    # The certificate is for the names that users know.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        if not connection.recv(LONGEST_GREETING).startswith(GREETING):
            raise OSError(f"Port {port} does not belong to a NATS server.")
        with context.wrap_socket(connection):
            return


if __name__ == "__main__":
    check(int(sys.argv[1]))
