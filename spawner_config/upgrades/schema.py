"""The schema of the hub's database, and the upgrade of an SQLite database."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from jupyterhub import dbutil
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool

from spawner_config.database import connect_options
from spawner_config.settings import SettingsError
from spawner_config.upgrades.version import RESTORE

FOLDER = ".upgrade-"
"""How the names of the folders begin in which copies of the database are upgraded."""


def known_revisions() -> list[str]:
    """Return the revisions of JupyterHub's schema that this hub knows; the first one is the newest."""
    return [script.revision for script in ScriptDirectory(dbutil.ALEMBIC_DIR).walk_revisions()]


def sqlite_file(url: str) -> Path | None:
    """Return the path of an SQLite database, or None if the database is another one or only in memory."""
    parts = make_url(url)
    is_file = parts.get_backend_name() == "sqlite" and parts.database not in {None, "", ":memory:"}
    return Path(str(parts.database)) if is_file else None


def revision_of(url: str) -> str | None:
    """Return the revision of a database's schema, or None if it has none; raises `SettingsError`."""
    database = sqlite_file(url)
    if database and not database.exists():
        return None
    parts = make_url(url)
    engine = create_engine(parts, poolclass=NullPool, connect_args=connect_options(parts))
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except DatabaseError as exc:
        raise SettingsError(
            f"The hub cannot read its database{f' {database}' if database else ''} ({exc.orig}). Nothing was changed. "
            "Check the database and its permissions, or restore a backup (`make restore`)."
        ) from exc


def check_revision(revision: str | None, version: str) -> None:
    """Raise `SettingsError` if the schema is not one that the hub, which has ``version``, knows."""
    if revision is not None and revision not in known_revisions():
        raise SettingsError(
            f"The hub's database has the schema {revision}, which version {version} of Farandole does not know: a "
            "newer version has upgraded it. Nothing was changed. Use the version that has upgraded the database, or "
            f"{RESTORE}."
        )


class SqliteUpgrade:
    """The upgrade of an SQLite database to the newest schema.

    SQLite commits each change of the schema separately from the new revision. JupyterHub's own upgrade, which changes
    the database in its place, would leave one that cannot be upgraded again if it was killed between the two. This
    upgrade changes a copy, and puts it in the place of the database in one step.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._folder = database.parent
        # An upgrade that is repeated after a kill finds the same database, so it makes no second copy.
        changed = datetime.fromtimestamp(database.stat().st_mtime, UTC)
        self.kept = database.with_name(f"{database.stem}-{changed:%Y%m%dT%H%M%SZ}{database.suffix}")
        """The path of the copy of the old database."""

    def prepare(self) -> None:
        """Keep a copy of the database, and upgrade another one; raises `SettingsError`."""
        for left in self._database.parent.glob(f"{FOLDER}*"):
            shutil.rmtree(left, ignore_errors=True)
        # The migrations of a hub that was killed may still run, so each attempt has a folder of its own.
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=self._database.parent))
        try:
            copy_sqlite(self._database, self._folder / self.kept.name)
            copy_sqlite(self._database, self._upgraded)
            _upgrade_in_place(self._upgraded)
            (self._folder / self.kept.name).replace(self.kept)
        except (OSError, sqlite3.Error, subprocess.CalledProcessError) as exc:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SettingsError(
                f"The schema of {self._database} was not upgraded ({exc}). The database is unchanged. The upgrade "
                f"needs twice the size of this file as free space in {self._database.parent}. If there is enough, "
                "continue with the version of before, and report the lines above."
            ) from exc

    def commit(self) -> None:
        """Put the upgraded copy in the place of the database."""
        self._upgraded.replace(self._database)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _upgraded(self) -> Path:
        return self._folder / self._database.name


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy an SQLite database to a new file; raises OSError or `sqlite3.Error`."""
    target.touch(mode=0o600, exist_ok=False)
    # The connection to the source may write, because SQLite first undoes what a killed hub has not committed.
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def put_back(kept: Path, database: Path) -> None:
    """Put the copy in the place of the database; raises OSError or `sqlite3.Error`."""
    # SQLite would apply the journal of the newer database, if its hub was killed, to the older one.
    with closing(sqlite3.connect(database)) as newer:
        newer.execute("SELECT count(*) FROM sqlite_master").fetchone()
    kept.replace(database)


def _upgrade_in_place(database: Path) -> None:
    """Run JupyterHub's migrations, whose log goes to this process's error output."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "alembic.ini"
        dbutil.write_alembic_ini(str(settings), f"sqlite:///{database}")
        # `dbutil.upgrade` finds the program `alembic` only if the virtual environment is in PATH.
        subprocess.run([sys.executable, "-m", "alembic", "-c", str(settings), "upgrade", "head"], check=True)
