"""A consistent copy of the hub's own state: its database, secrets, profiles and notices."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from spawner_config.snapshots.record import record_path

if TYPE_CHECKING:
    from pathlib import Path

DATABASE = ".sqlite"
LEFT_OUT = ("-journal", "-shm", "-wal", ".log", ".part", ".pid", ".port", "lock")
"""How the names of files end that belong to running processes."""
NOTICES = "notices"


def copy_state(state: Path, to: Path) -> None:
    """Copy the files of the hub's state folder, and the record of its mirror; raises OSError or `sqlite3.Error`."""
    copy_files(state, to)
    # With it, a new hub knows whose repositories are on the mirror.
    record = record_path(to)
    record.parent.mkdir(mode=0o700, parents=True)
    shutil.copy2(record_path(state), record)


def copy_files(state: Path, to: Path) -> None:
    """Copy the files of the hub's state folder to a new folder; raises OSError or `sqlite3.Error`.

    Homes, snapshots, streams, data sets and logs, which have folders of their own, are left out. The hub may run
    meanwhile: SQLite itself copies the database, with all that was committed and nothing else.
    """
    to.mkdir(mode=0o700)
    for path in sorted(state.iterdir()):
        if path.is_file() and not path.name.endswith(LEFT_OUT):
            _copy(path, to / path.name)
    if (state / NOTICES).is_dir():
        shutil.copytree(state / NOTICES, to / NOTICES, copy_function=_copy_file)


def _copy_file(path: str | Path, to: str | Path) -> None:
    """Copy a file, unless the hub has just removed it, such as a notice that its user has read."""
    with suppress(FileNotFoundError):
        shutil.copy2(path, to)


def _copy(path: Path, to: Path) -> None:
    if path.suffix != DATABASE:
        _copy_file(path, to)
        return
    to.touch(mode=0o600)
    # A hub that was killed has left a journal, which SQLite can only read if it may also remove it.
    with (
        closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as source,
        closing(sqlite3.connect(to)) as copy,
    ):
        source.backup(copy)
