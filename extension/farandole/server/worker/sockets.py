"""Ranks and their worker's server talk over Unix sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole.server.journal.tempdirs import own_folder

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def keep_sockets(serverapp: ServerApp) -> None:
    """Give the sockets of this server's kernels a folder that only its user can open, until the server ends.

    With TCP the server chooses free ports and the kernel binds them a second later; any connection of the machine may
    have taken one meanwhile, and one kernel of fifty never comes up. The folder is a temporary one because the path
    of a socket may have about 100 characters, which the usual one below the user's home can exceed.
    """
    serverapp.kernel_manager.connection_dir = str(own_folder("ipc"))
