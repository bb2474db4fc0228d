"""The hub's database of users and servers: an SQLite file in the state folder, or the one in FARANDOLE_DATABASE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from spawner_config.settings import DATABASE_EXAMPLE, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sqlalchemy import URL, Engine

CONNECT_SECONDS = 10
WRONG_PASSWORD = "password authentication failed"
"""Part of PostgreSQL's message for a wrong password; the PostgreSQL images use English messages."""


def database_url(environ: Mapping[str, str], state: Path) -> str:
    """Return the URL of the hub's database.

    If FARANDOLE_DATABASE is set, the hub first tests the connection. Raises `SettingsError` if the connection fails.
    """
    url = environ.get("FARANDOLE_DATABASE")
    if url:
        _connect(_engine(url))
        return url
    if "postgres" in (environ.get("COMPOSE_PROFILES") or "").split(","):
        raise SettingsError(
            "COMPOSE_PROFILES starts postgres, but FARANDOLE_DATABASE is empty, so the hub would not use it. "
            f"Set FARANDOLE_DATABASE to {DATABASE_EXAMPLE}, with the password of FARANDOLE_POSTGRES_PASSWORD."
        )
    return f"sqlite:///{state}/jupyterhub.sqlite"


def _engine(url: str) -> Engine:
    # Error messages must not contain any part of the URL, which includes the password, because several people read the
    # log.
    try:
        parts = make_url(url)
        if _ends_early(parts):
            raise ArgumentError("an @ in the password")
        return create_engine(parts, poolclass=NullPool, connect_args=connect_options(parts))
    except (ArgumentError, ImportError, ValueError) as exc:
        raise SettingsError(
            "FARANDOLE_DATABASE is not the address of a database that the hub can use. "
            f"Write it as {DATABASE_EXAMPLE}. If the password has an @, write %40 instead."
        ) from exc


def _ends_early(url: URL) -> bool:
    """Return whether an unescaped @ splits the password, whose rest would appear in errors as the host name."""
    return url.username is not None and "@" in f"{url.host}{url.database}"


def connect_options(url: URL) -> dict[str, int]:
    """Return options for the database driver: a time limit for connection attempts to PostgreSQL, otherwise none."""
    return {"connect_timeout": CONNECT_SECONDS} if url.get_backend_name() == "postgresql" else {}


def _connect(engine: Engine) -> None:
    # Without this test, JupyterHub would not log the reason, and would suggest upgrading the database.
    try:
        engine.connect().close()
    except DBAPIError as exc:
        raise SettingsError(refusal(str(exc.orig))) from exc


def refusal(reason: str) -> str:
    """Return an error message for the administrator; ``reason`` is the database driver's error text."""
    said = " ".join(reason.split())
    if WRONG_PASSWORD in said:
        return (
            f"The database rejects the password in FARANDOLE_DATABASE ({said}). PostgreSQL keeps the password of its "
            "first start: use that password, or change it in the database (with compose: `docker compose exec postgres "
            "psql -U farandole -c '\\password'`)."
        )
    return (
        f"The database of FARANDOLE_DATABASE cannot be used ({said}). Check that the address is correct "
        "and that the database is running. The database of docker-compose.yml runs if COMPOSE_PROFILES names postgres."
    )
