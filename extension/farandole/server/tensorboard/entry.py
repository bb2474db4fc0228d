"""Describes the viewer to jupyter-server-proxy, which finds `describe` by its entry point."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tornado.web import HTTPError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

START_SECONDS = 60.0


def describe() -> dict[str, Any]:
    """Return the configuration of the viewer, as jupyter-server-proxy documents it.

    The viewer listens on a Unix socket in a folder that only this user can enter. Any user of the machine could reach a
    TCP port, which has no login.
    """
    return {
        "command": command,
        "unix_socket": True,
        "timeout": START_SECONDS,
        "launcher_entry": {"title": "TensorBoard", "category": "Other"},
        # An open page asks for new data every 30 seconds, and must not keep an idle server alive.
        "update_last_activity": False,
    }


def command(unix_socket: str) -> list[str]:
    """Return the command that starts the viewer; raises HTTPError 501 if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise HTTPError(
            501,
            "TensorBoard is not installed in the environment of this server; run `%pip install tensorboard` in a "
            "notebook, and reload this page.",
        )
    share_signals()
    return [sys.executable, "-m", "farandole.server.tensorboard", unix_socket, str(os.getpid())]


def share_signals() -> None:
    """Let Jupyter Server keep its handlers of SIGINT and SIGTERM.

    simpervisor, which starts the processes of jupyter-server-proxy, replaces them by a handler that exits at once, so
    that Jupyter Server would not stop its kernels.
    """
    from simpervisor import atexitasync

    if not atexitasync.signal_handler_set:
        atexitasync.signal_handler_set = True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, partial(_forward, atexitasync._handlers, signal.getsignal(number)))


def _forward(processes: list[Callable[[int], None]], server: Any, number: int, frame: FrameType | None) -> None:
    """Send a signal to the processes of jupyter-server-proxy and then to Jupyter Server."""
    for send in processes:
        send(number)
    if callable(server):
        server(number, frame)
