"""Unix sockets between ranks and their worker's server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.server.journal.tempdirs import make_tempdir

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def use_private_ipc_folder(serverapp: ServerApp) -> None:
    """Put the sockets of this server's kernels into a private folder that is deleted when the server ends.

    Unix sockets avoid a race: with TCP, the server chooses free ports and the kernel binds them a second later. If
    another connection takes a port in between, the kernel never starts, as about one kernel in fifty did. The folder is
    below the temporary folder, because the path of a socket is limited to about 100 characters.
    """
    serverapp.kernel_manager.connection_dir = str(make_tempdir("ipc"))
