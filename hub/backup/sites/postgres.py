"""The PostgreSQL of docker-compose.yml: its dump, and a dump in the place of its content."""

from __future__ import annotations

from typing import Protocol

from hub.backup.state import REVISION, USERS

LOGIN = ("-U", "farandole", "-d", "farandole")
EMPTY = "DROP SCHEMA public CASCADE;\nCREATE SCHEMA public;\n"


class Compose(Protocol):
    """Runs docker compose with an input, and returns its output."""

    def __call__(self, *arguments: str, typed: str = "") -> str:
        """Run the command; raises `BackupError`."""


class Postgres:
    """The database in the service `postgres`, which has to run. All methods raise `BackupError`."""

    def __init__(self, compose: Compose) -> None:
        self._compose = compose

    def dump(self) -> str:
        """Return a consistent dump. The hub may run meanwhile."""
        return self._run("pg_dump", "--no-owner", "--no-privileges", *LOGIN)

    def restore(self, dump: str) -> None:
        """Replace the content by a dump, in one transaction."""
        options = ("--quiet", "--set=ON_ERROR_STOP=1", "--single-transaction", "--file=-")
        self._run("psql", *LOGIN, *options, typed=f"{EMPTY}{dump}")

    def users(self) -> int:
        """Return the number of users."""
        return int(self._value("users", USERS) or 0)

    def schema(self) -> str:
        """Return the revision of the schema, or an empty string."""
        return self._value("alembic_version", REVISION)

    def _value(self, table: str, query: str) -> str:
        """Return the result of a query, or an empty string if there is no such table."""
        there = self._run("psql", *LOGIN, "-tAc", f"SELECT to_regclass('public.{table}')").strip()
        return self._run("psql", *LOGIN, "-tAc", query).strip() if there else ""

    def _run(self, *command: str, typed: str = "") -> str:
        return self._compose("exec", "-T", "postgres", *command, typed=typed)
