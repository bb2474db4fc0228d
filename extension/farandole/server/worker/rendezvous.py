"""Horovod's rendezvous in a worker's server: it outlives ranks, and no worker has to reach the driver."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horovod.runner.http.http_server import RendezvousHTTPServer


class Rendezvous:
    """At most one rendezvous server at a time; opening the next one closes the last.

    Source: ``horovod/runner/http/http_server.py`` of Horovod 0.28.1.
    """

    def __init__(self) -> None:
        self._server: RendezvousHTTPServer | None = None

    def open(self, slots: list[dict[str, int | str]], host: str) -> int:
        """Serve a world of these slots (Horovod's SlotInfo fields) at `host`, or everywhere; return the port.

        Horovod's own wrapper listens on all addresses, also for a world of one machine.
        """
        from horovod.runner.common.util.hosts import SlotInfo
        from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

        self.close()
        server = RendezvousHTTPServer((host, 0), RendezvousHandler, 0)
        server.init([SlotInfo(**slot) for slot in slots])
        threading.Thread(target=server.serve_forever, name="farandole-rendezvous", daemon=True).start()
        self._server = server
        return int(server.server_address[1])

    def close(self) -> None:
        """Stop the server, where one runs."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
