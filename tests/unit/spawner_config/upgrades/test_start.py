"""Tests that the hub upgrades the state of older versions, refuses that of newer ones, and can undo an upgrade."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from spawner_config.settings import SettingsError
from spawner_config.upgrades import __main__ as command
from spawner_config.upgrades import schema
from spawner_config.upgrades.start import go_back, upgrade_state
from spawner_config.upgrades.version import NAME, StateVersion
from tests.old_state import NEW_REVISION, OLD_REVISION, revision_in, rows, write_old_state

if TYPE_CHECKING:
    from pathlib import Path

NEXT = "0.2.0"
NEW_COLUMNS = {"users": "user_info", "spawners": "display_name", "services": "timeout"}


class Killed(BaseException):
    """Raised in place of a kill: no code may handle it."""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    write_old_state(tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def quick_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change only the revision of the schema, because JupyterHub's migrations take seconds."""

    def migrate(database: Path) -> None:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", [NEW_REVISION])
            connection.commit()

    monkeypatch.setattr(schema, "_upgrade_in_place", migrate)


def url_of(state: Path) -> str:
    return f"sqlite:///{state}/jupyterhub.sqlite"


def upgrade(state: Path, version: str = NEXT) -> None:
    upgrade_state(state, url_of(state), version)


def revision(state: Path) -> str:
    return revision_in(state / "jupyterhub.sqlite")


def contents(state: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in state.iterdir()}


def dump(state: Path) -> list[str]:
    with closing(sqlite3.connect(state / "jupyterhub.sqlite")) as connection:
        return list(connection.iterdump())


def copies(state: Path) -> list[Path]:
    return sorted(state.glob("jupyterhub-*.sqlite"))


def test_an_older_schema_is_upgraded_and_the_old_database_is_kept(state: Path) -> None:
    upgrade(state)
    assert revision(state) == NEW_REVISION
    for table, column in NEW_COLUMNS.items():
        assert column in rows(state / "jupyterhub.sqlite", f"SELECT name FROM pragma_table_info('{table}')")
    [kept] = copies(state)
    assert revision_in(kept) == OLD_REVISION
    assert kept.stat().st_mode & 0o077 == 0
    written = StateVersion.read(state)
    assert written
    assert (written.version, written.revision) == (NEXT, NEW_REVISION)
    assert written.before
    assert (written.before.revision, written.before.database) == (OLD_REVISION, kept.name)
    assert {path.name for path in state.iterdir()} == {"jupyterhub.sqlite", kept.name, NAME}


def test_a_new_state_and_one_of_the_same_schema_only_get_the_version(tmp_path: Path) -> None:
    upgrade(tmp_path)
    assert contents(tmp_path).keys() == {NAME}
    write_old_state(tmp_path / "state", schema_of_jupyterhub_5=False)
    before = contents(tmp_path / "state")
    upgrade(tmp_path / "state")
    assert contents(tmp_path / "state").items() >= before.items()
    assert copies(tmp_path / "state") == []


def test_a_second_start_changes_nothing(state: Path, quick_migrations: None) -> None:
    upgrade(state)
    before = contents(state)
    upgrade(state)
    assert contents(state) == before


def test_a_newer_version_is_refused_and_nothing_is_changed(state: Path) -> None:
    StateVersion(version="9.0.0", revision="unknown").write(state)
    before = contents(state)
    with pytest.raises(SettingsError, match=r"Version 9\.0\.0 .*Use version 9\.0\.0 or newer"):
        upgrade(state)
    assert contents(state) == before


def test_an_unknown_schema_is_refused_and_nothing_is_changed(state: Path) -> None:
    with closing(sqlite3.connect(state / "jupyterhub.sqlite")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        connection.commit()
    before = contents(state)
    with pytest.raises(SettingsError, match=rf"ffffffffffff, which version {NEXT} .*make restore"):
        upgrade(state)
    assert contents(state) == before


def test_a_damaged_database_is_named(state: Path) -> None:
    (state / "jupyterhub.sqlite").write_bytes(b"no database" * 1000)
    before = contents(state)
    with pytest.raises(SettingsError, match=r"cannot read its database .*jupyterhub\.sqlite .*make restore"):
        upgrade(state)
    assert contents(state) == before


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        sqlite3.OperationalError("database or disk is full"),
        subprocess.CalledProcessError(1, ["alembic"]),
    ],
)
def test_a_failed_upgrade_changes_nothing(state: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    before = contents(state)
    monkeypatch.setattr(schema, "_upgrade_in_place", raising(error))
    with pytest.raises(SettingsError, match="was not upgraded .* The database is unchanged"):
        upgrade(state)
    assert contents(state) == before


def raising(error: BaseException) -> Any:
    def call(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return call


def kill_at(patch: pytest.MonkeyPatch, moment: str) -> None:
    """Make the upgrade end at a moment, as by a kill: what follows does not happen, nor does any cleanup."""
    targets: dict[str, tuple[Any, str]] = {
        "copy": (schema, "copy_sqlite"),
        "migrate": (schema, "_upgrade_in_place"),
        "record": (StateVersion, "write"),
        "commit": (schema.SqliteUpgrade, "commit"),
    }
    patch.setattr(*targets[moment], raising(Killed()))


@pytest.mark.parametrize("moment", ["copy", "migrate", "record", "commit"])
def test_a_killed_upgrade_leaves_the_old_state_and_continues(state: Path, quick_migrations: None, moment: str) -> None:
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, moment)
            with pytest.raises(Killed):
                upgrade(state)
        assert revision(state) == OLD_REVISION
    upgrade(state)
    assert revision(state) == NEW_REVISION
    [kept] = copies(state)
    assert revision_in(kept) == OLD_REVISION
    assert {path.name for path in state.iterdir()} == {"jupyterhub.sqlite", kept.name, NAME}
    go_back(state, url_of(state), NEXT)
    assert revision(state) == OLD_REVISION


def test_an_upgrade_is_undone(state: Path, quick_migrations: None) -> None:
    before = dump(state)
    upgrade(state)
    assert "again" in go_back(state, url_of(state), NEXT)
    assert contents(state).keys() == {"jupyterhub.sqlite"}
    assert dump(state) == before
    assert "nothing to undo" in go_back(state, url_of(state), NEXT)
    assert dump(state) == before


def test_the_version_of_before_is_recorded_again(state: Path, quick_migrations: None) -> None:
    upgrade(state, "0.2.0")
    upgrade(state, "0.3.0")
    assert "nothing to undo" in go_back(state, url_of(state), "0.2.0")
    go_back(state, url_of(state), "0.3.0")
    written = StateVersion.read(state)
    assert written
    assert (written.version, written.before) == ("0.2.0", None)
    # Without a change of the schema, the database stays: nothing that happened since is lost.
    assert revision(state) == NEW_REVISION


def test_the_journal_of_a_killed_newer_hub_does_not_reach_the_old_database(state: Path, quick_migrations: None) -> None:
    upgrade(state)
    database = state / "jupyterhub.sqlite"
    journal = state / "jupyterhub.sqlite-journal"
    with closing(sqlite3.connect(database)) as connection:
        # With a small cache, SQLite writes pages of the open transaction to the database.
        connection.execute("PRAGMA cache_size = 2")
        connection.execute("UPDATE api_tokens SET note = hex(zeroblob(20000))")
        killed = database.read_bytes(), journal.read_bytes()
    database.write_bytes(killed[0])
    journal.write_bytes(killed[1])
    go_back(state, url_of(state), NEXT)
    assert revision(state) == OLD_REVISION
    assert not journal.exists()


def test_a_lost_copy_is_named(state: Path, quick_migrations: None) -> None:
    upgrade(state)
    copies(state)[0].unlink()
    with pytest.raises(SettingsError, match=rf"schema {NEW_REVISION} instead of {OLD_REVISION}.*make restore"):
        go_back(state, url_of(state), NEXT)
    assert revision(state) == NEW_REVISION


def test_going_back_is_repeated_after_a_kill(state: Path, quick_migrations: None) -> None:
    upgrade(state, "0.2.0")
    (state / "jupyterhub.sqlite").unlink()
    copies(state)[0].rename(state / "jupyterhub.sqlite")
    go_back(state, url_of(state), "0.2.0")
    assert contents(state).keys() == {"jupyterhub.sqlite"}


def test_the_command(state: Path, quick_migrations: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["back"], {}) == 2
    upgrade(state)
    assert command.main(["back", NEXT], {"FARANDOLE_STATE": str(state)}) == 0
    assert f"from before version {NEXT} again" in capsys.readouterr().out
    assert revision(state) == OLD_REVISION
