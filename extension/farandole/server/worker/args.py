"""Command-line arguments of a worker's Jupyter server, shared by all spawners and private workers."""

from __future__ import annotations

# Listed by name, because each installed extension enables itself and can only be disabled by name.
EXTENSIONS = {
    "farandole.server": True,
    "farandole.server.notebook": False,
    "ipyparallel": False,
    "jupyter_lsp": False,
    "jupyter_server_terminals": False,
    "jupyterlab": False,
    "nbclassic": False,
    "notebook": False,
    "notebook_shim": False,
}

WORKER_ARGS = [
    "--ServerApp.default_url=/api",
    "--ServerApp.terminals_enabled=False",
    # A body is in memory before its sender is known; the largest is the list of the ranks of a world.
    "--ServerApp.max_body_size=10000000",
    f"--ServerApp.jpserver_extensions={EXTENSIONS}",
    "--ServerApp.kernel_websocket_connection_class=farandole.server.worker.websocket.RankWebsocketConnection",
    "--ServerApp.kernel_manager_class=farandole.server.worker.ranks.RankKernelManager",
    # Messages that a connection has missed are in the journal, so buffering them is not needed.
    "--MappingKernelManager.buffer_offline_messages=False",
    # Why: see farandole.server.worker.sockets.
    "--KernelManager.transport=ipc",
    # A dead kernel is reported instead of restarted: a restarted one would continue with an empty namespace.
    "--AsyncIOLoopKernelRestarter.restart_limit=0",
    "--AsyncIOLoopKernelRestarter.time_to_dead=0.5",
    "--AsyncIOLoopKernelManager.shutdown_wait_time=1",
    # By default, Jupyter Server drops output above a rate limit without notice.
    "--ZMQChannelsWebsocketConnection.limit_rate=False",
]
