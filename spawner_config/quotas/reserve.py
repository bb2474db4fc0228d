"""Reserves disk space for the hub's SQLite database, so that the hub can write to it while its disk is full.

SQLite needs new disk space in two places: for pages beyond the end of the file, and for the rollback journal. The
reserve are free pages within the file, and a journal that is overwritten instead of deleted after each transaction.
See https://www.sqlite.org/pragma.html#pragma_journal_mode and https://www.sqlite.org/fileformat2.html#the_freelist.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, make_url
from tornado.log import app_log

RESERVE_BYTES = 4 * 2**20
"""Enough for some thousand logins."""
JOURNAL_BYTES = 2**20
TABLE = "farandole_reserve"


def reserve_database(url: str) -> None:
    """Reserve the space for a database, before the hub opens it. Databases other than SQLite's have no reserve.

    A disk without room for it only causes a warning.
    """
    parts = make_url(url)
    if parts.get_backend_name() != "sqlite" or not parts.database or parts.database == ":memory:":
        return
    path = Path(parts.database)
    try:
        reserve_pages(path)
        reserve_journal(path)
    except (OSError, sqlite3.Error) as exc:
        app_log.warning("The hub's database has no reserve of disk space: %s. Free some space on its disk.", exc)
    event.listen(Engine, "connect", keep_journal)


def reserve_pages(path: Path, size: int = RESERVE_BYTES) -> None:
    """Add free pages to a database until it has ``size`` bytes of them. Later writes use these pages first."""
    with closing(sqlite3.connect(path)) as database:
        free, page = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
        missing = size - free * page
        if missing <= 0:
            return
        # A hub that was killed here has left the table.
        database.execute(f"DROP TABLE IF EXISTS {TABLE}")
        database.execute(f"CREATE TABLE {TABLE} (content BLOB)")
        with database:
            database.execute(f"INSERT INTO {TABLE} VALUES (zeroblob(?))", (missing,))
        # A transaction of its own: SQLite does not write pages that a transaction both adds and frees, so they would
        # get no space on the disk.
        database.execute(f"DROP TABLE {TABLE}")


def reserve_journal(path: Path, size: int = JOURNAL_BYTES) -> None:
    """Extend the journal of a database to ``size`` bytes. A journal that begins with zeros belongs to no transaction.

    A journal of a transaction that a killed hub left has been rolled back when the database was opened.
    """
    journal = path.with_name(f"{path.name}-journal")
    with journal.open("ab") as file:
        missing = size - os.fstat(file.fileno()).st_size
        if missing > 0:
            file.write(bytes(missing))
            file.flush()
            os.fsync(file.fileno())


def keep_journal(connection: Any, _record: Any) -> None:
    """Overwrite the journal's header at the end of a transaction, instead of deleting the journal."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA journal_mode=PERSIST").close()
