"""Where the hub keeps its users and servers: a file in its state folder, or the database of FARANDOLE_DATABASE."""

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
"""PostgreSQL's words in the language of its images."""


def database_url(environ: Mapping[str, str], state: Path) -> str:
    """Return the hub's database, one that answers where FARANDOLE_DATABASE names it; raises `SettingsError`."""
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
    # No refusal holds the address or part of it: the password is in it, and the hub's log is read by more than one.
    try:
        parts = make_url(url)
        if _ends_early(parts):
            raise ArgumentError("an @ in the password")
        return create_engine(parts, poolclass=NullPool, connect_args=connect_options(parts))
    except (ArgumentError, ImportError, ValueError) as exc:
        raise SettingsError(
            "FARANDOLE_DATABASE is no address of a database that the hub can use. "
            f"Write it as {DATABASE_EXAMPLE}; where the password has an @, write @ as %40."
        ) from exc


def _ends_early(url: URL) -> bool:
    """Return whether an @ of the password ended it, so that its rest would be told as the name of a host."""
    return url.username is not None and "@" in f"{url.host}{url.database}"


def connect_options(url: URL) -> dict[str, int]:
    """Return what the driver needs to give up in time on a server that does not answer."""
    return {"connect_timeout": CONNECT_SECONDS} if url.get_backend_name() == "postgresql" else {}


def _connect(engine: Engine) -> None:
    # The hub itself would say only that this failed, and advise an upgrade of the database.
    try:
        engine.connect().close()
    except DBAPIError as exc:
        raise SettingsError(refusal(str(exc.orig))) from exc


def refusal(reason: str) -> str:
    """Return what to tell the administrator when the database's driver gives this reason."""
    said = " ".join(reason.split())
    if WRONG_PASSWORD in said:
        return (
            f"The database does not take the password in FARANDOLE_DATABASE ({said}). PostgreSQL keeps the password of "
            "its first start: give that one, or set the new one there (with compose: `docker compose exec postgres "
            "psql -U farandole -c '\\password'`)."
        )
    return (
        f"The database of FARANDOLE_DATABASE cannot be used ({said}). Check its address and that it runs; the one of "
        "docker-compose.yml runs where COMPOSE_PROFILES names postgres."
    )
