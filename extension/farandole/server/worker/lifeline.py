"""Stops the worker of a local cluster when the driver that started the worker ends."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

LIFELINE_VARIABLE = "FARANDOLE_LIFELINE"


def stop_with_parent(serverapp: ServerApp) -> None:
    """Stop the server when the parent process ends, even if the parent is killed.

    The parent keeps the write end of a pipe open and passes the descriptor of the read end in ``FARANDOLE_LIFELINE``.
    If this variable is not set, the server does not depend on its parent.
    """
    descriptor = os.environ.pop(LIFELINE_VARIABLE, None)
    if descriptor is None:
        return
    loop = asyncio.get_event_loop_policy().get_event_loop()
    loop.add_reader(int(descriptor), _stop, serverapp, int(descriptor))


def _stop(serverapp: ServerApp, descriptor: int) -> None:
    asyncio.get_running_loop().remove_reader(descriptor)
    serverapp.log.info("the driver has ended; stopping")
    serverapp.stop(from_signal=True)
