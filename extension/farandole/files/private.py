"""A folder for temporary files that other users of the machine can neither read nor replace."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def private_folder(name: str) -> Path:
    """Return this user's folder with this name among the temporary files, which only the user can enter.

    Processes of the user share the folder, and it stays when they end.
    """
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077:
        return folder
    # Another user could have made this folder to replace what this user writes there.
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))
