"""The arguments of a worker's Jupyter server, one place for every spawner and for private workers."""

from __future__ import annotations

# Named one by one: the files of installed extensions switch them on, and only their names switch them off.
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
    f"--ServerApp.jpserver_extensions={EXTENSIONS}",
    "--ServerApp.kernel_websocket_connection_class=farandole.server.worker.websocket.RankWebsocketConnection",
    "--ServerApp.kernel_manager_class=farandole.server.worker.ranks.RankKernelManager",
    # Nobody comes back for what a connection has missed: the record has it.
    "--MappingKernelManager.buffer_offline_messages=False",
    # Why: see farandole.server.worker.sockets.
    "--KernelManager.transport=ipc",
    # A death is told at once: a rank restarted in silence would go on with an empty namespace.
    "--AsyncIOLoopKernelRestarter.restart_limit=0",
    "--AsyncIOLoopKernelRestarter.time_to_dead=0.5",
    "--AsyncIOLoopKernelManager.shutdown_wait_time=1",
    # The default limit drops output in silence.
    "--ZMQChannelsWebsocketConnection.limit_rate=False",
]
