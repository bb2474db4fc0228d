"""Farandole's extension for the Jupyter server of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

FIRST_HOME_SECONDS = 60.0
"""The longest wait before a worker measures the home, unless another server of the user has measured it."""


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "farandole.server"}]


def _load_jupyter_server_extension(serverapp: ServerApp) -> None:
    import signal

    from farandole.quotas.watch import watch_home
    from farandole.server.activity import report_activity
    from farandole.server.journal.cleanup import remove_stale_copies
    from farandole.server.senders import limit_bodies
    from farandole.server.worker.lifeline import stop_with_parent
    from farandole.server.worker.routes import add_routes
    from farandole.server.worker.sockets import use_private_ipc_folder

    add_routes(serverapp)
    stop_with_parent(serverapp)
    use_private_ipc_folder(serverapp)
    report_activity(serverapp)
    limit_bodies(serverapp)
    remove_stale_copies()
    # The user's notebook server usually measures the home. Workers of a laptop's driver have to do it themselves.
    watch_home(serverapp.log, first_seconds=FIRST_HOME_SECONDS, reports=False)
    # The hub stops local processes with SIGINT. Jupyter Server's own handler asks for confirmation in a terminal. If
    # there is no terminal, the handler exits immediately without stopping the kernels.
    signal.signal(signal.SIGINT, serverapp._signal_stop)
