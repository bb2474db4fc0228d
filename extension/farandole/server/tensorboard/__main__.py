"""The process of the viewer: ``python -m farandole.server.tensorboard SOCKET SERVER``.

It serves TensorBoard on the Unix socket ``SOCKET``, and ends when its parent, the Jupyter server with the process id
``SERVER``, has ended.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

from tensorboard import program
from werkzeug.serving import ThreadedWSGIServer

from farandole.runs.store import RunStore

RELOAD_SECONDS = 30
"""The time between two searches for new data. TensorBoard's page asks for new data as often."""
PARENT_SECONDS = 1.0


class UnixServer(ThreadedWSGIServer):
    """Serves TensorBoard on the Unix socket that the flag ``host`` names. TensorBoard's own server knows only TCP."""

    def __init__(self, app: Any, flags: Any) -> None:
        super().__init__(f"unix://{flags.host}", 0, app)

    def get_url(self) -> str:
        """Return the address, as `tensorboard.program` requires."""
        return self.host


def serve(socket: str) -> None:
    """Serve TensorBoard on a Unix socket in a thread."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    board = program.TensorBoard(server_class=UnixServer)
    # With fast loading, a data server listens at a TCP port without a login.
    board.configure(logdir=str(RunStore().folder), host=socket, load_fast="false", reload_interval=RELOAD_SECONDS)
    board.launch()


def wait_for(parent: int) -> None:
    """Return when the parent process has ended, even if it was killed."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)


if __name__ == "__main__":
    serve(sys.argv[1])
    wait_for(int(sys.argv[2]))
