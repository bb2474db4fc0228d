"""Remembers which runs the user has deleted, because workers may still have the journals of these runs.

Without this, the next driver that attaches to the workers would take a deleted run for a new one and restore it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from farandole.protocol import DELETED_RUNS
from farandole.reading import SAFE

KEPT_SECONDS = 90 * 86_400.0
"""Age in seconds after which a tombstone is removed. Workers do not keep journals for so long."""


def is_deleted(folder: Path) -> bool:
    """Return whether the user has deleted the run that had this folder."""
    return os.path.lexists(_tombstone(folder))


@contextmanager
def marked_as_deleted(folder: Path) -> Iterator[None]:
    """Mark a run as deleted, and remove the mark if this context, which deletes the run, raises an error.

    A full volume does not prevent the deletion, but then the run can come back. Raises OSError for other errors.
    """
    tombstone = _tombstone(folder)
    try:
        tombstone.parent.mkdir(exist_ok=True)
        _refuse_link(tombstone.parent)
        os.close(os.open(tombstone, os.O_WRONLY | os.O_CREAT | SAFE, 0o644))
    except OSError as exc:
        if exc.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
    try:
        yield
    except BaseException:
        unmark(folder)
        raise


def unmark(folder: Path) -> None:
    """Forget that a run was deleted, because its ranks are still executing it."""
    with suppress(OSError):
        _refuse_link(_tombstone(folder).parent)
        _tombstone(folder).unlink(missing_ok=True)


def prune(store: Path) -> None:
    """Remove the tombstones that are older than `KEPT_SECONDS`. Tombstones that cannot be removed stay."""
    with suppress(OSError):
        _refuse_link(store / DELETED_RUNS)
        for tombstone in (store / DELETED_RUNS).iterdir():
            if time.time() - tombstone.lstat().st_mtime > KEPT_SECONDS:
                tombstone.unlink(missing_ok=True)


def _tombstone(folder: Path) -> Path:
    return folder.parent / DELETED_RUNS / folder.name


def _refuse_link(folder: Path) -> None:
    """Raise OSError if the folder of the tombstones is a link, which might lead to files that must not be removed."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "The folder is a symbolic link", str(folder))
