"""The hub's state folder: its id, its lock, its copy, and what its database contains."""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hub.backup.place import BackupError
from hub.backup.swap import LOCK
from spawner_config.settings import ensure_secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATABASE = "jupyterhub.sqlite"
DUMP = "database.sql"
"""The dump of PostgreSQL, beside the files of the state folder."""
HUB_ID = "hub_id"
USERS, REVISION = "SELECT count(*) FROM users", "SELECT version_num FROM alembic_version"


@contextmanager
def exclusive(state: Path) -> Iterator[None]:
    """Keep other processes from backing up or restoring the hub in this context; raises `BackupError`."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (state / LOCK).open("w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise BackupError(
                "Another backup or restore of this hub is running. Try again when it has finished."
            ) from exc
        yield


def hub_id(state: Path, *, create: bool = False) -> str:
    """Return the random id of the hub, or an empty string if there is none and ``create`` is false."""
    path = state / HUB_ID
    return ensure_secret(path)[:16] if create or path.exists() else ""


def count_users(state: Path) -> int:
    """Return the number of users in the SQLite database of a state folder."""
    return int(_value(state, USERS) or 0)


def schema_of(state: Path) -> str:
    """Return the revision of the schema of the SQLite database, or an empty string."""
    return str(_value(state, REVISION) or "")


def _value(state: Path, query: str) -> Any:
    path = state / DATABASE
    if not path.exists():
        return None
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as database:
        try:
            row = database.execute(query).fetchone()
        except sqlite3.OperationalError as exc:
            # A hub that was killed at its first start has left a database without tables.
            if "no such table" in str(exc):
                return None
            raise BackupError(f"The database {path} cannot be read: {exc}.") from exc
        except sqlite3.DatabaseError as exc:
            raise BackupError(f"The database {path} is damaged: {exc}. Move it away to restore a backup.") from exc
    return row[0] if row else None
