"""Configures the Unix sockets through which a worker's server communicates with its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.server.journal.tempdirs import make_tempdir

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def use_private_ipc_folder(serverapp: ServerApp) -> None:
    """Put the sockets of this server's kernels into a private folder that is deleted when the server ends.

    Unix sockets avoid a race. With TCP, the server chooses free ports, and the kernel binds them about a second later.
    If another connection takes one of the ports in the meantime, the kernel never starts. This happened to about one
    kernel in fifty. The folder is in the temporary folder, because the path of a Unix socket is limited to about 100
    characters.
    """
    serverapp.kernel_manager.connection_dir = str(make_tempdir("ipc"))
