"""Tests for backups of hubs without containers, with real repositories of restic in folders."""

from __future__ import annotations

import fcntl
import json
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hub.backup.agent import perform
from hub.backup.job import SAVE, Job
from hub.backup.manifest import STATE, Manifest, Part
from hub.backup.operations import Choice, back_up, list_backups, restore
from hub.backup.place import BackupError
from hub.backup.repository import Repository
from hub.backup.restore import Staging
from hub.backup.swap import LOCK
from spawner_config.operators.backup_record import BackupRecord
from tests.clients.backups import PASSWORD_FILE, tree
from tests.clients.mirrors import restic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.backups import LocalHub

NEWEST = Choice()


def test_an_empty_machine_gets_the_whole_hub(hub: LocalHub, new: LocalHub, place: Path) -> None:
    manifest = back_up(hub.site, hub.place(place))
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


def test_the_snapshots_of_users_keep_the_time_of_their_arrival(hub: LocalHub, new: LocalHub, place: Path) -> None:
    back_up(hub.site, hub.place(place))
    new.knows_passphrase_of(hub)
    restore(new.site, new.place(place), NEWEST)
    for path in (hub.state / "snapshots" / "ada" / "snapshots").iterdir():
        copy = new.state / "snapshots" / "ada" / "snapshots" / path.name
        assert int(copy.stat().st_mtime) == int(path.stat().st_mtime)


def test_the_manifest_and_the_record_say_what_was_backed_up(
    hub: LocalHub, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = back_up(hub.site, hub.place(place))
    said = capsys.readouterr().err
    assert f"{hub.state / PASSWORD_FILE} is the passphrase of the backups. Keep a copy of it elsewhere" in said
    assert (hub.state / PASSWORD_FILE).stat().st_mode & 0o777 == 0o600
    assert (manifest.deployment, manifest.database, manifest.schema) == ("local", "sqlite", "4621fec11365")
    repositories = [f"repositories/{number}" for number in (1, 2, 3)]
    assert [part.name for part in manifest.parts] == [STATE, *repositories, "home/ada", "home/grace"]
    assert manifest.bytes > 100_000
    record = BackupRecord.read(hub.state)
    assert record == BackupRecord(id=manifest.id, time=manifest.time, place=str(place), bytes=manifest.bytes)
    assert back_up(hub.site, hub.place(place)).id > manifest.id
    assert "passphrase" not in capsys.readouterr().err


def test_what_is_backed_up_again_takes_little_room(hub: LocalHub, place: Path) -> None:
    (hub.homes / "ada" / "large").write_bytes(bytes(range(256)) * 40_000)
    back_up(hub.site, hub.place(place))
    before = _size(place)
    back_up(hub.site, hub.place(place))
    assert _size(place) - before < 200_000


def test_a_database_of_a_killed_hub_is_backed_up(hub: LocalHub, new: LocalHub, place: Path) -> None:
    kill = "import os, sqlite3; d = sqlite3.connect('jupyterhub.sqlite'); d.execute('PRAGMA cache_size = 1'); "
    kill += "d.executemany('INSERT INTO users VALUES (?)', [(str(n) * 999,) for n in range(999)]); os._exit(1)"
    subprocess.run(["python3", "-c", kill], cwd=hub.state, check=False)
    assert (hub.state / "jupyterhub.sqlite-journal").exists()
    back_up(hub.site, hub.place(place))
    new.knows_passphrase_of(hub)
    restore(new.site, new.place(place), NEWEST)
    assert new.users() == ["ada", "grace"]


def test_a_hub_with_users_is_only_replaced_after_a_backup(hub: LocalHub, place: Path) -> None:
    first = back_up(hub.site, hub.place(place))
    hub.write("ada", "notes.txt", "changed")
    hub.write("otto", "notes.txt", "new")
    hub.add_users("otto")
    changed = tree(hub.homes)
    with pytest.raises(BackupError, match=r"This hub has 3 users and 3 homes, and nothing was changed\. .* REPLACE=yes"):
        restore(hub.site, hub.place(place), NEWEST)
    assert tree(hub.homes) == changed
    assert restore(hub.site, hub.place(place), Choice(replace=True)) == first
    assert hub.users() == ["ada", "grace"]
    assert (hub.homes / "ada" / "notes.txt").read_text() == "of ada"
    assert not (hub.homes / "otto").exists()
    # The state before the restore is the newest backup.
    restore(hub.site, hub.place(place), Choice(replace=True))
    assert hub.users() == ["ada", "grace", "otto"]
    assert tree(hub.homes) == changed


def test_homes_without_a_database_are_not_overwritten(hub: LocalHub, new: LocalHub, place: Path) -> None:
    back_up(hub.site, hub.place(place))
    new.knows_passphrase_of(hub)
    new.write("ada", "notes.txt", "newer")
    with pytest.raises(BackupError, match="This hub has 0 users and 1 homes, and nothing was changed"):
        restore(new.site, new.place(place), NEWEST)
    assert (new.homes / "ada" / "notes.txt").read_text() == "newer"
    restore(new.site, new.place(place), Choice(replace=True, other_hub=True))
    complete, _ = list_backups(new.site, new.place(place))
    assert len(complete) == 2


def test_a_wrong_passphrase_changes_nothing(hub: LocalHub, new: LocalHub, place: Path) -> None:
    back_up(hub.site, hub.place(place))
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


def test_a_backup_of_another_hub_is_refused(hub: LocalHub, new: LocalHub, place: Path, tmp_path: Path) -> None:
    theirs = back_up(hub.site, hub.place(place))
    new.fill()
    (other := tmp_path / "other").mkdir()
    ours = back_up(new.site, new.place(other))
    new.knows_passphrase_of(hub)
    before = new.secrets()
    with pytest.raises(BackupError, match=rf"is of another hub, whose id is {theirs.hub}\. This hub's id is {ours.hub}"):
        restore(new.site, new.place(place), Choice(replace=True))
    assert new.secrets() == before
    restore(new.site, new.place(place), Choice(replace=True, other_hub=True))
    assert new.secrets() == hub.secrets()


def test_backups_of_several_hubs_need_a_choice(hub: LocalHub, new: LocalHub, place: Path, tmp_path: Path) -> None:
    first = back_up(hub.site, hub.place(place))
    new.fill()
    new.knows_passphrase_of(hub)
    back_up(new.site, new.place(place))
    empty = type(hub)(tmp_path / "empty")
    empty.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match=rf"are of several hubs\. Add BACKUP= with one of: {first.id}, "):
        restore(empty.site, empty.place(place), NEWEST)
    restore(empty.site, empty.place(place), Choice(backup=first.id))
    assert empty.secrets() == hub.secrets()


def test_an_incomplete_backup_is_named_and_not_restored(hub: LocalHub, new: LocalHub, place: Path) -> None:
    first = back_up(hub.site, hub.place(place))
    repository = _repository(hub, place)
    repository.back_up(hub.homes, (f"hub={first.hub}", "backup=99991231T000000Z-0000", "part=state"))
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match=rf"99991231T000000Z-0000 is incomplete, .* Complete are: {first.id}\."):
        restore(new.site, new.place(place), Choice(backup="99991231T000000Z-0000"))
    complete, interrupted = list_backups(new.site, new.place(place))
    assert ([each.id for each in complete], interrupted) == ([first.id], ["99991231T000000Z-0000"])
    assert restore(new.site, new.place(place), NEWEST) == first


def test_a_place_without_a_complete_backup_says_so(hub: LocalHub, new: LocalHub, place: Path) -> None:
    hub.place(place).passphrase(create=True)
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match="There is no backup at"):
        restore(new.site, new.place(place), NEWEST)
    repository = _repository(hub, place)
    repository.create()
    repository.back_up(hub.homes, ("hub=1", "backup=interrupted", "part=state"))
    with pytest.raises(BackupError, match=r"No backup at .* is complete, .* Interrupted were: interrupted\."):
        restore(new.site, new.place(place), NEWEST)
    with pytest.raises(BackupError, match=r"There is no backup nothing\. Complete are: none\."):
        restore(new.site, new.place(place), Choice(backup="nothing"))
    with pytest.raises(BackupError, match="does not exist. Create it, or mount its disk"):
        back_up(hub.site, hub.place(place / "missing"))


def test_two_backups_at_once_are_refused(hub: LocalHub, place: Path) -> None:
    with (hub.state / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BackupError, match=r"Another backup or restore of this hub is running\."):
            back_up(hub.site, hub.place(place))


def test_a_running_hub_is_not_replaced(hub: LocalHub, place: Path) -> None:
    back_up(hub.site, hub.place(place))
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
    hub: LocalHub, new: LocalHub, place: Path, tmp_path: Path, change: dict[str, str], message: str
) -> None:
    manifest = back_up(hub.site, hub.place(place))
    changed = replace(manifest, id="99991231T000000Z-0000", **change)
    folder = tmp_path / "manifest"
    folder.mkdir()
    (folder / "manifest.json").write_text(changed.to_json())
    _repository(hub, place).back_up(folder, (f"hub={manifest.hub}", f"backup={changed.id}", "part=manifest"))
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match=message):
        restore(new.site, new.place(place), NEWEST)
    assert not new.homes.exists()


@pytest.mark.parametrize("name", ["../state", "home/../ada", "home/", "group/a/b", "other"])
def test_names_of_parts_lead_to_no_other_folder(name: str) -> None:
    part = Part(name=name, snapshot="1", bytes=0, files=0)
    values = {each: "1" for each in ("id", "hub", "time", "version", "schema", "deployment", "database")}
    with pytest.raises(BackupError, match="does not know"):
        Manifest.from_json(Manifest(**values, parts=(part,)).to_json(), "one")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"parts": [1]}', '{"parts": []}', '{"parts": [], "x": 1}'])
def test_a_damaged_manifest_is_named(text: str) -> None:
    with pytest.raises(BackupError, match="The manifest of the backup one cannot be read"):
        Manifest.from_json(text, "one")


def test_a_disk_without_room_keeps_what_it_has(hub: LocalHub, new: LocalHub, place: Path) -> None:
    manifest = back_up(hub.site, hub.place(place))
    large = replace(manifest.parts[0], bytes=1 << 60)
    staging = Staging(_job(hub, place), replace(manifest, parts=(large,)), _repository(hub, place))
    with pytest.raises(BackupError, match=r"GiB free, and the backup needs .* Make room, and try again; nothing was"):
        staging.check_room()


def test_a_restore_that_fails_leaves_nothing(hub: LocalHub, new: LocalHub, place: Path) -> None:
    back_up(hub.site, hub.place(place))
    packs = sorted((place / "farandole" / "data").rglob("*"), key=lambda path: path.stat().st_size)
    packs[-1].unlink()
    new.knows_passphrase_of(hub)
    with pytest.raises(BackupError, match="restic failed with the backups at"):
        restore(new.site, new.place(place), NEWEST)
    assert not list(new.state.rglob(".restore"))
    assert not list(new.homes.iterdir())
    assert sorted(path.name for path in new.state.iterdir() if path.is_file()) == ["backup.lock", PASSWORD_FILE, "lock"]


def test_old_backups_are_removed_and_the_last_ones_stay(hub: LocalHub, new: LocalHub, place: Path) -> None:
    first = back_up(hub.site, hub.place(place))
    repository = _repository(hub, place)
    repository.back_up(hub.homes, (f"hub={first.hub}", f"backup={first.id}x", "part=state"))
    repository.back_up(hub.homes, ("hub=other", "backup=00000000T000000Z-0000", "part=state"))
    second = back_up(hub.site, hub.place(place))
    hub.write("ada", "notes.txt", "third")
    third = back_up(hub.site, hub.place(place), keep=2)
    complete, interrupted = list_backups(hub.site, hub.place(place))
    assert [each.id for each in complete] == [second.id, third.id]
    assert interrupted == ["00000000T000000Z-0000"]
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


def _job(hub: LocalHub, place: Path) -> Job:
    return Job(action=SAVE, place=str(place), passphrase="x", state=str(hub.state))


def _repository(hub: LocalHub, place: Path) -> Repository:
    found = hub.place(place)
    return Repository(found.at(str(place)), found.passphrase())


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
