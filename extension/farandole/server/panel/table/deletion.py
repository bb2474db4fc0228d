"""Deletes the folders of runs. A folder is first renamed, so that a run is either complete or no longer listed."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from farandole.runs.lifecycle import tombstones

DELETED = ".deleted-"
"""Beginning of the name of a folder that is being removed. The list of runs omits names that begin with a dot."""


def hide(folder: Path) -> Path:
    """Rename a run's folder so that the run is no longer listed. Return the new path."""
    return folder.rename(folder.with_name(f"{DELETED}{secrets.token_hex(8)}"))


def remove(folder: Path) -> None:
    """Remove a hidden folder. Of a symbolic link, remove only the link. Raises OSError if a file cannot be removed."""
    # Another server may remove the same folder at the same time.
    with suppress(FileNotFoundError):
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)


def remove_leftovers(store: Path) -> None:
    """Remove the folders whose removal was interrupted, and old tombstones. What cannot be removed stays."""
    tombstones.prune(store)
    with suppress(OSError), os.scandir(store) as entries:
        for name in [entry.name for entry in entries if entry.name.startswith(DELETED)]:
            with suppress(OSError):
                remove(store / name)
