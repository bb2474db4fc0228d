"""Makes the state of a hub of commit 3ff8f67, the oldest release, from the fixtures in tests/compat."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import bcrypt

from spawner_config.upgrades.schema import known_revisions

FIXTURES = Path(__file__).parent / "compat" / "fixtures"
OLD_REVISION = "4621fec11365"
"""The revision of the schema of JupyterHub 5."""
NEW_REVISION = known_revisions()[0]
PASSWORD = "three quiet horses"
"""The password of both users."""
USERS = ["ada", "grace"]
SERVERS = {"", "digits-w0", "digits-w1", "lost-elastic-w0", "lost-elastic-w1"}
"""The names of ada's servers."""


def old_sql(*, schema_of_jupyterhub_5: bool = True) -> str:
    """Return the database of the old hub as SQL, with accounts for both users."""
    names = ["jupyterhub.sql", *(["jupyterhub-5.sql"] if schema_of_jupyterhub_5 else [])]
    fixtures = [(FIXTURES / name).read_text(encoding="utf-8") for name in names]
    return "".join([*fixtures, *(_account(user) for user in USERS)])


def _account(user: str) -> str:
    # The old hub hashed passwords in the same way, with a higher cost.
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).hex()
    columns = "username, password, is_authorized, login_email_sent, has_2fa"
    return f"INSERT INTO users_info ({columns}) VALUES ('{user}', X'{hashed}', 1, 0, 0);\n"


def write_old_state(state: Path, *, schema_of_jupyterhub_5: bool = True) -> Path:
    """Write the database of the old hub into a new state folder, and return its path."""
    state.mkdir(mode=0o700, exist_ok=True)
    database = state / "jupyterhub.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(old_sql(schema_of_jupyterhub_5=schema_of_jupyterhub_5))
    return database


def rows(database: Path, query: str) -> list[Any]:
    """Return the first column of the result of a query."""
    with closing(sqlite3.connect(database)) as connection:
        return [first for first, *_ in connection.execute(query)]


def revision_in(database: Path) -> str:
    """Return the revision of the schema, after checking that the database is intact and has all users."""
    assert rows(database, "PRAGMA integrity_check") == ["ok"]
    # A hub with accounts adds its administrator.
    assert rows(database, "SELECT name FROM users ORDER BY id")[: len(USERS)] == USERS
    [revision] = rows(database, "SELECT version_num FROM alembic_version")
    return str(revision)
