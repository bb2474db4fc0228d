"""A private worker ends with the driver that started it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

LIFELINE_VARIABLE = "FARANDOLE_LIFELINE"


def hold_lifeline(serverapp: ServerApp) -> None:
    """Stop the server when the pipe that its parent holds open is closed, be it by a kill -9 of the parent.

    The parent passes the read end's descriptor in ``FARANDOLE_LIFELINE``; without it nothing happens.
    """
    descriptor = os.environ.pop(LIFELINE_VARIABLE, None)
    if descriptor is None:
        return
    loop = asyncio.get_event_loop_policy().get_event_loop()
    loop.add_reader(int(descriptor), _let_go, serverapp, int(descriptor))


def _let_go(serverapp: ServerApp, descriptor: int) -> None:
    asyncio.get_running_loop().remove_reader(descriptor)
    serverapp.log.info("the driver is gone; stopping")
    serverapp.stop(from_signal=True)
