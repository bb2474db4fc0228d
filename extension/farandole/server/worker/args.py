"""Command-line arguments for a worker's Jupyter server, used by all spawners and by local clusters without a hub."""

from __future__ import annotations

# Installed extensions enable themselves and can only be disabled by name.
EXTENSIONS = {
    "farandole.server": True,
    "farandole.server.notebook": False,
    "ipyparallel": False,
    "jupyter_lsp": False,
    "jupyter_server_proxy": False,
    "jupyter_server_terminals": False,
    "jupyterlab": False,
    "nbclassic": False,
    "notebook": False,
    "notebook_shim": False,
}

WORKER_ARGS = [
    "--ServerApp.default_url=/farandole/page",
    "--ServerApp.terminals_enabled=False",
    # The largest valid body lists the ranks of a world. Senders without a login have a smaller limit; see
    # farandole.server.senders.
    "--ServerApp.max_body_size=10000000",
    f"--ServerApp.jpserver_extensions={EXTENSIONS}",
    "--ServerApp.kernel_websocket_connection_class=farandole.server.worker.websocket.RankWebsocketConnection",
    "--ServerApp.kernel_manager_class=farandole.server.worker.ranks.RankKernelManager",
    # The journal records the messages that a disconnected driver has missed, so the server need not buffer them.
    "--MappingKernelManager.buffer_offline_messages=False",
    # See farandole.server.worker.sockets for the reason.
    "--KernelManager.transport=ipc",
    # A dead kernel is reported instead of restarted, because a restarted kernel would have an empty namespace.
    "--AsyncIOLoopKernelRestarter.restart_limit=0",
    "--AsyncIOLoopKernelRestarter.time_to_dead=0.5",
    "--AsyncIOLoopKernelManager.shutdown_wait_time=1",
    # By default, Jupyter Server silently drops output that exceeds a rate limit.
    "--ZMQChannelsWebsocketConnection.limit_rate=False",
]
