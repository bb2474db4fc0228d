"""Makes the state of a hub of commit 3ff8f67, the oldest release, from the fixtures in tests/compat."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spawner_config.upgrades.schema import known_revisions

if TYPE_CHECKING:
    from collections.abc import Iterable

FIXTURES = Path(__file__).parent / "compat" / "fixtures"
JUPYTERHUB_5 = ("jupyterhub.sql", "jupyterhub-5.sql", "accounts.sql")
"""The fixtures that make a database with the schema of JupyterHub 5."""
OLD_REVISION = "4621fec11365"
"""The revision of the schema of JupyterHub 5."""
NEW_REVISION = known_revisions()[0]
PASSWORD = "three quiet horses"
"""The password of both users, whose hash is in accounts.sql."""
USERS = ["ada", "grace"]
SERVERS = {"", "digits-w0", "digits-w1", "lost-elastic-w0", "lost-elastic-w1"}
"""The names of ada's servers."""


def write_old_state(state: Path, fixtures: Iterable[str] = JUPYTERHUB_5) -> Path:
    """Write the database of the old hub into a new state folder, and return its path."""
    state.mkdir(mode=0o700, exist_ok=True)
    database = state / "jupyterhub.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        for name in fixtures:
            connection.executescript((FIXTURES / name).read_text(encoding="utf-8"))
    return database


def rows(database: Path, query: str) -> list[Any]:
    """Return the first column of the result of a query."""
    with closing(sqlite3.connect(database)) as connection:
        return [first for first, *_ in connection.execute(query)]


def revision_in(database: Path) -> str:
    """Return the revision of the schema, after checking that the database is intact and has all users."""
    assert rows(database, "PRAGMA integrity_check") == ["ok"]
    assert rows(database, "SELECT name FROM users ORDER BY id") == USERS
    [revision] = rows(database, "SELECT version_num FROM alembic_version")
    return str(revision)
