"""Tests for backups of hubs without containers, with real repositories of restic in folders."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hub.backup.agent import perform
from hub.backup.job import SAVE, STAGE, Job
from hub.backup.manifest import STATE, Manifest, Part
from hub.backup.operations import Choice, back_up, list_backups, restore
from hub.backup.place import BackupError
from hub.backup.repository import Repository
from hub.backup.restore import Staging
from hub.backup.state import hub_id
from hub.backup.swap import LOCK
from spawner_config.operators.backup_record import BackupRecord
from tests.clients.backups import PASSWORD_FILE, tree
from tests.clients.mirrors import restic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.backups import LocalHub

NEWEST = Choice()


def test_an_empty_machine_gets_the_whole_hub(hub: LocalHub, new: LocalHub, place: Path, manifest: Manifest) -> None:
    new.knows_passphrase_of(hub)
    assert restore(new.site, new.place(place), NEWEST) == manifest
    assert tree(new.homes) == tree(hub.homes)
    assert new.users() == ["ada", "grace"]
    assert new.secrets() == hub.secrets()
    assert len(new.secrets()) == 4
    assert (new.state / "notices" / "ada.json").read_text() == "[]"
    assert not (new.state / "hub.log").exists()
    assert not list(new.state.rglob(".restore"))
    secret = new.state / "snapshots_secret"
    assert "no errors were found" in restic(new.state / "snapshots" / "ada", secret, "check", "--read-data")
    # The hub removes snapshots by the time of their arrival.
    for path in (hub.state / "snapshots" / "ada" / "snapshots").iterdir():
        copy = new.state / "snapshots" / "ada" / "snapshots" / path.name
        assert int(copy.stat().st_mtime) == int(path.stat().st_mtime)


def test_the_first_backup_makes_the_passphrase_and_a_record(
    hub: LocalHub, empty_place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (hub.state / PASSWORD_FILE).unlink()
    manifest = back_up(hub.site, hub.place(empty_place))
    said = capsys.readouterr().err
    assert f"{hub.state / PASSWORD_FILE} is the passphrase of the backups. Keep a copy of it elsewhere" in said
    assert (hub.state / PASSWORD_FILE).stat().st_mode & 0o777 == 0o600
    assert (manifest.deployment, manifest.database, manifest.schema) == ("local", "sqlite", "4621fec11365")
    repositories = [f"repositories/{number}" for number in (1, 2, 3)]
    assert [part.name for part in manifest.parts] == [STATE, *repositories, "home/ada", "home/empty", "home/grace"]
    assert manifest.bytes > 100_000
    record = BackupRecord.read(hub.state)
    assert record == BackupRecord(id=manifest.id, time=manifest.time, place=str(empty_place), bytes=manifest.bytes)


def test_what_is_backed_up_again_takes_little_room(
    hub: LocalHub, place: Path, manifest: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _size(place)
    assert back_up(hub.site, hub.place(place)).id > manifest.id
    assert _size(place) - before < 100_000
    assert "passphrase" not in capsys.readouterr().err


@pytest.mark.release
def test_a_database_of_a_killed_hub_is_backed_up(hub: LocalHub, new: LocalHub, place: Path) -> None:
    kill = "import os, sqlite3; d = sqlite3.connect('jupyterhub.sqlite'); d.execute('PRAGMA cache_size = 1'); "
    kill += "d.executemany('INSERT INTO users VALUES (?)', [(str(n) * 999,) for n in range(999)]); os._exit(1)"
    subprocess.run([sys.executable, "-c", kill], cwd=hub.state, check=False)
    assert (hub.state / "jupyterhub.sqlite-journal").exists()
    back_up(hub.site, hub.place(place))
    new.knows_passphrase_of(hub)
    restore(new.site, new.place(place), NEWEST)
    assert new.users() == ["ada", "grace"]


def test_a_hub_with_users_is_only_replaced_after_a_backup(hub: LocalHub, place: Path, manifest: Manifest) -> None:
    hub.write("ada", "notes.txt", "changed")
    hub.write("otto", "notes.txt", "new")
    hub.add_users("otto")
    changed = tree(hub.homes)
    with pytest.raises(BackupError, match=r"has 3 users and 4 homes, and nothing was changed\. .* REPLACE=yes"):
        restore(hub.site, hub.place(place), NEWEST)
    assert tree(hub.homes) == changed
    assert restore(hub.site, hub.place(place), Choice(replace=True)) == manifest
    assert hub.users() == ["ada", "grace"]
    assert (hub.homes / "ada" / "notes.txt").read_text() == "of ada"
    assert not (hub.homes / "otto").exists()
    complete, _ = list_backups(hub.site, hub.place(place))
    assert [part.name for part in complete[-1].parts][-1] == "home/otto"


def test_homes_without_a_database_are_not_overwritten(hub: LocalHub, new: LocalHub, place: Path) -> None:
    new.knows_passphrase_of(hub)
    new.write("ada", "notes.txt", "newer")
    with pytest.raises(BackupError, match="This hub has 0 users and 1 homes, and nothing was changed"):
        restore(new.site, new.place(place), NEWEST)
    assert (new.homes / "ada" / "notes.txt").read_text() == "newer"


def test_a_wrong_passphrase_changes_nothing(hub: LocalHub, new: LocalHub, place: Path) -> None:
    with pytest.raises(BackupError, match=r"There is no file .*/backup_password .* FARANDOLE_BACKUP_PASSWORD_FILE"):
        restore(new.site, new.place(place), NEWEST)
    new.knows_passphrase_of(hub)
    (new.state / PASSWORD_FILE).write_text("wrong")
    with pytest.raises(BackupError, match="The passphrase does not open the backups at"):
        restore(new.site, new.place(place), NEWEST)
    assert not new.homes.exists()
    (hub.state / PASSWORD_FILE).write_text("wrong")
    with pytest.raises(BackupError, match="The passphrase does not open the backups at"):
        back_up(hub.site, hub.place(place))


def test_a_backup_of_another_hub_is_refused(hub: LocalHub, new: LocalHub, place: Path, manifest: Manifest) -> None:
    new.knows_passphrase_of(hub)
    own = hub_id(new.state, create=True)
    with pytest.raises(BackupError, match=rf"is of another hub, whose id is {manifest.hub}\. This hub's id is {own}"):
        restore(new.site, new.place(place), Choice(replace=True))
    assert hub_id(new.state) == own
    restore(new.site, new.place(place), Choice(other_hub=True))
    assert new.secrets() == hub.secrets()


def test_backups_of_several_hubs_need_a_choice(hub: LocalHub, new: LocalHub, place: Path, manifest: Manifest) -> None:
    other = replace(manifest, id="99991231T000000Z-0000", hub="other")
    _add_manifest(hub, place, other)
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match=rf"are of several hubs\. Add BACKUP= with one of: {manifest.id}, {other.id}"):
        restore(new.site, new.place(place), NEWEST)
    restore(new.site, new.place(place), Choice(backup=manifest.id))
    assert new.secrets() == hub.secrets()


def test_an_incomplete_backup_is_named_and_not_restored(
    hub: LocalHub, new: LocalHub, place: Path, manifest: Manifest
) -> None:
    name = "99991231T000000Z-0000"
    _repository(hub, place).back_up(hub.homes, (f"hub={manifest.hub}", f"backup={name}", "part=state"))
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match=rf"{name} is incomplete, .* Complete are: {manifest.id}\."):
        restore(new.site, new.place(place), Choice(backup=name))
    complete, interrupted = list_backups(new.site, new.place(place))
    assert (complete, interrupted) == ([manifest], [name])
    assert not new.homes.exists()


def test_a_place_without_a_complete_backup_says_so(hub: LocalHub, new: LocalHub, empty_place: Path) -> None:
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match="There is no backup at"):
        restore(new.site, new.place(empty_place), NEWEST)
    repository = _repository(hub, empty_place)
    repository.create()
    repository.back_up(hub.homes, ("hub=1", "backup=interrupted", "part=state"))
    with pytest.raises(BackupError, match=r"No backup at .* is complete, .* Interrupted were: interrupted\."):
        restore(new.site, new.place(empty_place), NEWEST)
    with pytest.raises(BackupError, match=r"There is no backup nothing\. Complete are: none\."):
        restore(new.site, new.place(empty_place), Choice(backup="nothing"))
    with pytest.raises(BackupError, match="does not exist. Create it, or mount its disk"):
        back_up(hub.site, hub.place(empty_place / "missing"))


def test_a_place_that_is_not_mounted_gets_no_backup(hub: LocalHub, empty_place: Path) -> None:
    BackupRecord(id="1", time="2026-11-30T18:00:00+00:00", place=str(empty_place), bytes=1).write(hub.state)
    with pytest.raises(BackupError, match="but the hub was backed up there, as 1. Mount its disk, or choose another"):
        back_up(hub.site, hub.place(empty_place))
    assert not list(empty_place.iterdir())


def test_two_backups_at_once_are_refused(hub: LocalHub, place: Path) -> None:
    with (hub.state / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BackupError, match=r"Another backup or restore of this hub is running\."):
            back_up(hub.site, hub.place(place))


def test_a_running_hub_is_not_replaced(hub: LocalHub, place: Path) -> None:
    with (hub.state / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BackupError, match=r"A hub is running with the state folder .* Stop it first\."):
            restore(hub.site, hub.place(place), Choice(replace=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "99.0.0"}, "was made by version 99.0.0, and this is .* Install version 99.0.0 or a newer one"),
        ({"deployment": "docker"}, "is of a hub with FARANDOLE_DEPLOYMENT=docker, and this one has local"),
        ({"database": "postgresql"}, "has a database of the kind postgresql, and this hub one of the kind sqlite"),
        ({"format": 2}, "has a form or parts that this version does not know"),
    ],
)
def test_what_this_hub_cannot_restore_is_refused(
    hub: LocalHub, new: LocalHub, place: Path, manifest: Manifest, change: dict[str, Any], message: str
) -> None:
    _add_manifest(hub, place, replace(manifest, id="99991231T000000Z-0000", **change))
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match=message):
        restore(new.site, new.place(place), NEWEST)
    assert not new.homes.exists()


@pytest.mark.parametrize("name", ["../state", "home/../ada", "home/", "group/a/b", "other"])
def test_names_of_parts_lead_to_no_other_folder(name: str) -> None:
    part = Part(name=name, snapshot="1", bytes=0, files=0)
    values = dict.fromkeys(("id", "hub", "time", "version", "schema", "deployment", "database"), "1")
    with pytest.raises(BackupError, match="does not know"):
        Manifest.from_json(Manifest(**values, parts=(part,)).to_json(), "one")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"parts": [1]}', '{"parts": []}', '{"parts": [], "x": 1}'])
def test_a_damaged_manifest_is_named(text: str) -> None:
    with pytest.raises(BackupError, match="The manifest of the backup one cannot be read"):
        Manifest.from_json(text, "one")


def test_a_disk_without_room_keeps_what_it_has(hub: LocalHub, place: Path, manifest: Manifest) -> None:
    large = replace(manifest.parts[0], bytes=1 << 60)
    job = Job(action=STAGE, place=str(place), passphrase="x", state=str(hub.state))
    staging = Staging(job, replace(manifest, parts=(large,)), _repository(hub, place))
    with pytest.raises(BackupError, match=r"GiB free, and the backup needs .* Make room, and try again; nothing was"):
        staging.check_room()


def test_a_restore_that_fails_leaves_nothing(hub: LocalHub, new: LocalHub, place: Path) -> None:
    packs = [path for path in (place / "farandole" / "data").rglob("*") if path.is_file()]
    max(packs, key=lambda path: path.stat().st_size).unlink()
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match="restic failed with the backups at"):
        restore(new.site, new.place(place), NEWEST)
    assert not list(new.state.rglob(".restore"))
    assert not list(new.homes.iterdir())
    assert not {path.name for path in new.state.iterdir()} & {"jupyterhub.sqlite", "cookie_secret", "password"}


@pytest.mark.release
def test_old_backups_are_removed_and_the_last_ones_stay(
    hub: LocalHub, new: LocalHub, place: Path, manifest: Manifest
) -> None:
    repository = _repository(hub, place)
    repository.back_up(hub.homes, (f"hub={manifest.hub}", f"backup={manifest.id}x", "part=state"))
    repository.back_up(hub.homes, ("hub=other", "backup=00000000T000000Z-0000", "part=state"))
    second = back_up(hub.site, hub.place(place))
    hub.write("ada", "notes.txt", "third")
    third = back_up(hub.site, hub.place(place), keep=2)
    assert list_backups(hub.site, hub.place(place)) == ([second, third], ["00000000T000000Z-0000"])
    new.knows_passphrase_of(hub)
    restore(new.site, new.place(place), Choice(backup=second.id))
    assert (new.homes / "ada" / "notes.txt").read_text() == "of ada"


def test_a_login_is_only_in_the_settings() -> None:
    job = Job(action=SAVE, place="/x", passphrase="secret-1", state="/y", secret="secret-2", dump="secret-3")
    assert "secret" not in repr(job)
    assert Job.from_json(job.to_json()) == job
    assert json.loads(job.to_json())["passphrase"] == "secret-1"


def test_there_must_be_a_hub(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="There is no hub to back up: the state folder"):
        perform(Job(action=SAVE, place=str(tmp_path), passphrase="x", state=str(tmp_path / "none")))


def _repository(hub: LocalHub, place: Path) -> Repository:
    found = hub.place(place)
    return Repository(found.at(str(place)), found.passphrase())


def _add_manifest(hub: LocalHub, place: Path, manifest: Manifest) -> None:
    folder = hub.state.parent / "manifest"
    folder.mkdir()
    (folder / "manifest.json").write_text(manifest.to_json())
    _repository(hub, place).back_up(folder, (f"hub={manifest.hub}", f"backup={manifest.id}", "part=manifest"))


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
