"""What the hub does with its state before it opens the database, and how to undo that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from farandole import __version__
from tornado.log import app_log

from spawner_config.settings import SettingsError
from spawner_config.upgrades.schema import (
    SqliteUpgrade,
    check_revision,
    known_revisions,
    put_back,
    revision_of,
    sqlite_file,
)
from spawner_config.upgrades.version import NAME, RESTORE, Before, StateVersion

if TYPE_CHECKING:
    from pathlib import Path


def upgrade_state(state: Path, url: str, version: str = __version__) -> None:
    """Upgrade the state to the version of this hub; raises `SettingsError` if a newer version has used it.

    ``url`` is that of the database. This upgrades an SQLite database. JupyterHub upgrades others when it opens them,
    each change in a transaction. If the hub is killed meanwhile, the next start continues.
    """
    written, revision = StateVersion.read(state), revision_of(url)
    if written:
        written.check(version)
    check_revision(revision, version)
    newest = known_revisions()[0]
    upgrade = _upgrade(url, revision, newest)
    if upgrade:
        app_log.warning("The hub upgrades the schema of its database from %s to %s", revision, newest)
        upgrade.prepare()
    now = StateVersion(version=version, revision=newest, before=_before(written, revision, version, upgrade))
    # The file is written first: it has the name of the copy.
    if now != written:
        now.write(state)
    if upgrade:
        upgrade.commit()
        app_log.warning("The copy of the database from before the upgrade is %s", upgrade.kept)


def _upgrade(url: str, revision: str | None, newest: str) -> SqliteUpgrade | None:
    database = sqlite_file(url)
    return SqliteUpgrade(database) if database and revision not in {None, newest} else None


def _before(
    written: StateVersion | None, revision: str | None, version: str, upgrade: SqliteUpgrade | None
) -> Before | None:
    """Return what `go_back` needs. It stays as it is until the next upgrade."""
    earlier = written.before if written else None
    is_new = written is None or written.version != version
    if revision is None or not (is_new or upgrade):
        return earlier
    was = written.version if written and is_new else (earlier.version if earlier else None)
    return Before(version=was, revision=revision, database=upgrade.kept.name if upgrade else None)


def go_back(state: Path, url: str, version: str) -> str:
    """Undo the upgrade of the state to ``version``, and return what was done; raises `SettingsError`.

    The hub must not run. If the schema has changed, an SQLite database becomes the one of before. Other databases have
    to be restored before.
    """
    written = StateVersion.read(state)
    if written is None or written.version != version or written.before is None:
        return f"The hub has not upgraded its state to version {version}, so there is nothing to undo."
    before, database = written.before, sqlite_file(url)
    if before.database and database:
        kept = database.with_name(before.database)
        # Without the copy, an earlier attempt has put it back, and was killed before it wrote version.json.
        if kept.exists():
            put_back(kept, database)
    if (revision := revision_of(url)) != before.revision:
        raise SettingsError(
            f"The database has the schema {revision} instead of {before.revision}, and the copy from before the "
            f"upgrade is gone. Keep version {version}, or {RESTORE}."
        )
    if before.version is None:
        (state / NAME).unlink()
    else:
        StateVersion(version=before.version, revision=before.revision).write(state)
    return f"The hub's state is the one from before version {version} again."
