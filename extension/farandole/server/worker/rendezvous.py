"""Runs Horovod's rendezvous server in a worker's server.

The rendezvous server therefore survives the death of ranks, and workers do not have to connect to the driver.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from horovod.runner.http.http_server import RendezvousHTTPServer


NUMBERS = {"rank", "local_rank", "cross_rank", "size", "local_size", "cross_size"}


def are_slots(value: Any) -> TypeGuard[list[dict[str, int | str]]]:
    """Return whether a JSON value is a list of ranks, each with the fields of Horovod's SlotInfo."""
    return isinstance(value, list) and all(
        isinstance(one, dict)
        and one.keys() == {"hostname", *NUMBERS}
        and isinstance(one["hostname"], str)
        and all(type(one[key]) is int for key in NUMBERS)
        for one in value
    )


class Rendezvous:
    """Manages the rendezvous server of this process. Opening a new server closes the previous one.

    Source: ``horovod/runner/http/http_server.py`` of Horovod 0.28.1.
    """

    def __init__(self) -> None:
        self._server: RendezvousHTTPServer | None = None

    def open(self, slots: list[dict[str, int | str]], host: str) -> int:
        """Start a rendezvous server for the ranks in ``slots`` and return its port.

        Each slot contains the fields of Horovod's SlotInfo. The server listens on the address ``host``, or on all
        addresses if ``host`` is empty. Horovod's own wrapper is not used, because it always listens on all addresses.
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
        """Stop the rendezvous server if it is running."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
