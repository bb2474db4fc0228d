"""The side of Farandole that runs in a worker's Jupyter server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "farandole.server"}]


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    import signal

    from farandole.server.activity import report_activity
    from farandole.server.journal.cleanup import sweep_copies
    from farandole.server.worker.lifeline import hold_lifeline
    from farandole.server.worker.routes import add_routes
    from farandole.server.worker.sockets import keep_sockets

    add_routes(serverapp)
    hold_lifeline(serverapp)
    keep_sockets(serverapp)
    report_activity(serverapp)
    sweep_copies()
    # So the hub stops local processes; without a terminal Jupyter Server would end at once and leave nothing.
    signal.signal(signal.SIGINT, serverapp._signal_stop)
