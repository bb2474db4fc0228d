"""Tests for the mirror of a hub in a folder, with the real restic."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from hub.services.snapshots.mirrors.__main__ import main
from hub.services.snapshots.mirrors.mirror import PASSWORD, STATE
from hub.services.snapshots.mirrors.state import NOTICES, copy_state
from hub.services.snapshots.retention import HOUR
from spawner_config.origins.hosts import host_label
from spawner_config.settings import ROOT
from spawner_config.snapshots.record import MirrorRecord
from tests.clients.forger import Forger
from tests.clients.mirrors import HUB_FILES, HubFiles, restic, snapshots
from tests.clients.snapshots import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILL_SECONDS = 60.0
ZOE = host_label("zoë")


async def test_the_mirror_has_the_state_and_all_snapshots(hub: HubFiles, place: Path, tmp_path: Path) -> None:
    assert await hub.mirror(str(place)).run() == []
    password = hub.state / PASSWORD
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert {each.name for each in place.iterdir()} == {STATE, "ada", ZOE}
    own = snapshots(hub.state / "snapshots" / "ada", hub.state / "snapshots_secret")
    mirrored = snapshots(place / "ada", password)
    assert [(each["time"], each["tree"], each.get("tags")) for each in mirrored] == [
        (each["time"], each["tree"], each.get("tags")) for each in own
    ]
    restic(place / STATE, password, "restore", "latest", "--target", str(tmp_path / "back"))
    assert sorted(each.name for each in (tmp_path / "back").iterdir()) == sorted([*HUB_FILES, "snapshots"])
    with closing(sqlite3.connect(tmp_path / "back" / "jupyterhub.sqlite")) as database:
        assert database.execute("select name from users").fetchall() == [("ada",)]
    record = MirrorRecord.read(tmp_path / "back")
    assert record is not None
    assert record.users == {"ada": "ada", ZOE: "zoë"}
    assert sorted(each.name for each in hub.store.own.iterdir()) == ["maintenance", "mirror.json", "parts", "pruning"]


async def test_new_snapshots_are_added_and_nothing_is_removed(hub: HubFiles, place: Path) -> None:
    mirror = hub.mirror(str(place))
    assert await mirror.run() == []
    before = state_of(place)
    await hub.take("ada", b"third")
    (first, *_) = snapshots(hub.state / "snapshots" / "ada", hub.state / "snapshots_secret")
    restic(hub.state / "snapshots" / "ada", hub.state / "snapshots_secret", "forget", "--prune", first["id"])
    assert await mirror.run() == []
    assert len(snapshots(place / "ada", hub.state / PASSWORD)) == 3
    after = state_of(place)
    assert before.items() <= after.items()
    assert {name for name in after.keys() - before.keys() if name.startswith(ZOE)} == set()


async def test_a_mirror_is_due_when_the_last_one_is_too_old(hub: HubFiles, place: Path) -> None:
    place.rmdir()
    mirror = hub.mirror(str(place), hours="2")
    for hours, tried in ((0.0, False), (1.9, False), (2.0, True)):
        record = MirrorRecord(place=str(place), finished=time.time() - hours * HOUR, users={"ada": "ada"})
        record.write(hub.state)
        await mirror.run_if_due()
        assert bool(mirror.record().problems) == tried
        # What has failed is tried again.
        assert mirror.record().finished == record.finished
    # What another place has says nothing about this one.
    assert hub.mirror("/mnt").record() == MirrorRecord(place="/mnt", users={"ada": "ada"})


@pytest.mark.release
async def test_another_hub_gets_all_back_and_keeps_it(hub: HubFiles, place: Path, tmp_path: Path) -> None:
    assert await hub.mirror(str(place)).run() == []
    other = HubFiles(tmp_path / "other")
    shutil.copy2(hub.state / PASSWORD, other.state)
    restic(place / STATE, hub.state / PASSWORD, "restore", "latest", "--target", str(other.state))
    mirror = other.mirror(str(place))
    assert {user: await mirror.restore(user) for user in mirror.record().users.values()} == {"ada": 2, "zoë": 1}
    assert await mirror.restore("ada") == 0
    repository = await other.store.of("ada")
    assert repository is not None
    password = tmp_path / "password"
    password.write_text(other.store.password("ada"))
    restored = snapshots(repository.folder, password)
    assert [each.get("tags") for each in restored] == [None, ["message=before%20cleaning"]]
    # Otherwise the hub would remove all but the first snapshot of the hour in which they were restored.
    for each in restored:
        taken = datetime.fromisoformat(each["time"]).timestamp()
        assert repository.path("snapshots", each["id"]).stat().st_mtime == pytest.approx(taken, abs=1)
    restic(repository.folder, password, "restore", restored[0]["id"], "--target", str(tmp_path / "home"))
    [notes] = (tmp_path / "home").rglob("notes.txt")
    assert notes.read_text() == "first"


async def test_a_wrong_password_is_named_and_changes_nothing(hub: HubFiles, place: Path) -> None:
    mirror = hub.mirror(str(place))
    assert await mirror.run() == []
    before, finished = state_of(place), mirror.record().finished
    (hub.state / PASSWORD).write_text("wrong")
    [problem] = await mirror.run()
    assert f"The password in {hub.state / PASSWORD} does not open the mirror at {place}." in problem
    assert state_of(place) == before
    assert (mirror.record().finished, mirror.record().problems) == (finished, [problem])


@pytest.mark.release
async def test_a_mirror_whose_disk_is_not_mounted_is_not_created_anew(hub: HubFiles, place: Path) -> None:
    mirror = hub.mirror(str(place))
    MirrorRecord(place=str(place), finished=1.0).write(hub.state)
    place.rmdir()
    [problem] = await mirror.run()
    assert f"The folder {place} for the mirror does not exist." in problem
    place.mkdir()
    [problem] = await mirror.run()
    assert "is empty, but has been used before" in problem
    assert list(place.iterdir()) == []
    assert await mirror.run(everything=True) == []
    assert {each.name for each in place.iterdir()} == {STATE, "ada", ZOE}


async def test_what_a_user_writes_into_a_snapshot_keeps_no_other_user_from_the_mirror(
    hub: HubFiles, place: Path
) -> None:
    repository = hub.state / "snapshots" / "ada"
    forger = Forger(repository, hub.store.password("ada"))
    forger.add_snapshot("Save(x), retrying after 1s: no space left on device", "0" * 64)
    mirror = hub.mirror(str(place))
    [problem] = await mirror.run()
    assert "The snapshots of ada are not mirrored" in problem
    assert set(mirror.record().copied) == {ZOE}
    assert mirror.record().finished > 0


@pytest.mark.release
async def test_a_damaged_repository_keeps_no_other_from_the_mirror(hub: HubFiles, place: Path) -> None:
    (hub.state / "snapshots" / "ada" / "config").chmod(0o600)
    (hub.state / "snapshots" / "ada" / "config").write_bytes(b"damaged")
    mirror = hub.mirror(str(place))
    [problem] = await mirror.run()
    assert "The snapshots of ada are not mirrored" in problem
    assert set(mirror.record().copied) == {ZOE}
    # It is tried again with the next mirror, not within the hour.
    assert mirror.record().finished > 0


@pytest.mark.release
async def test_a_database_that_cannot_be_copied_keeps_no_snapshots_from_the_mirror(hub: HubFiles, place: Path) -> None:
    (hub.state / "jupyterhub.sqlite").write_bytes(b"no database" * 1000)
    mirror = hub.mirror(str(place))
    [problem] = await mirror.run()
    assert problem == "The hub's state is not mirrored: the database cannot be copied: file is not a database."
    assert set(mirror.record().copied) == {"ada", ZOE}
    assert not (hub.store.own / "state").exists()


async def test_only_one_process_prunes_or_mirrors(hub: HubFiles, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.services.snapshots.mirrors.mirror.WAIT_SECONDS", 0.0)
    async with hub.store.maintenance():
        assert await hub.mirror(str(place)).run() == [
            "Another process prunes or mirrors snapshots. Try again when it has finished."
        ]
    assert list(place.iterdir()) == []


def test_the_copy_of_the_database_is_consistent_while_the_hub_writes(hub: HubFiles, tmp_path: Path) -> None:
    MirrorRecord(place="/mirror").write(hub.state)
    with closing(sqlite3.connect(hub.state / "jupyterhub.sqlite")) as database:
        database.execute("insert into users values ('not committed')")
        copy_state(hub.state, tmp_path / "copy")
        database.rollback()
    with closing(sqlite3.connect(tmp_path / "copy" / "jupyterhub.sqlite")) as copy:
        assert copy.execute("select name from users").fetchall() == [("ada",)]
    assert sorted(each.name for each in (tmp_path / "copy").iterdir()) == sorted({*HUB_FILES, "snapshots"} - {PASSWORD})


def test_a_notice_that_goes_keeps_no_state_from_the_mirror(hub: HubFiles, tmp_path: Path) -> None:
    MirrorRecord(place="/mirror").write(hub.state)
    (hub.state / NOTICES).mkdir()
    (hub.state / NOTICES / "ada").write_text("notice")
    # A link to nothing is a file that is gone when it is copied.
    (hub.state / NOTICES / "grace").symlink_to(tmp_path / "gone")
    copy_state(hub.state, tmp_path / "copy")
    assert [each.name for each in (tmp_path / "copy" / NOTICES).iterdir()] == ["ada"]


@pytest.mark.release
def test_the_commands_mirror_check_and_restore(hub: HubFiles, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = hub.environ(str(place))
    assert main(["now"], environ) == 0
    assert capsys.readouterr().out == "The hub's state and the snapshots of 2 users are mirrored.\n"
    assert main(["check", "--read-data"], environ) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{STATE}: 1 snapshots, no errors",
        "ada: 2 snapshots, no errors",
        f"{ZOE}: 1 snapshots, no errors",
    ]
    assert main(["restore", "ada", "nobody"], environ) == 1
    found = capsys.readouterr()
    assert found.out == "ada: 0 snapshots restored\n"
    assert found.err == f"nobody: The mirror at {place} has no snapshots of nobody.\n"
    assert not (hub.store.folder / "nobody").exists()
    pack = next(each for each in (place / "ada" / "data").rglob("*") if each.is_file())
    pack.chmod(0o600)
    pack.write_bytes(pack.read_bytes()[:-1] + b"x")
    assert main(["check", "--read-data"], environ) == 1
    assert "The mirror of ada is not intact: " in capsys.readouterr().err


def test_a_hub_without_a_mirror_has_no_commands(hub: HubFiles) -> None:
    with pytest.raises(SystemExit, match="FARANDOLE_SNAPSHOTS_MIRROR is not set"):
        main(["now"], hub.environ(""))
    with pytest.raises(SystemExit, match="FARANDOLE_SNAPSHOTS_MIRROR is 'mirror'. It must be the absolute path"):
        main(["now"], hub.environ("mirror"))


@pytest.mark.parametrize("kills", [1, pytest.param(30, marks=[pytest.mark.release, pytest.mark.timeout(1800)])])
async def test_a_mirror_that_is_killed_is_completed_by_the_next_one(hub: HubFiles, place: Path, kills: int) -> None:
    environ = {**os.environ, **hub.environ(str(place))}
    for number in range(kills):
        await hub.take("ada", os.urandom(24 << 20))
        watched = place if number % 2 == 0 else place / "ada"
        before = set(watched.rglob("*"))
        command = [sys.executable, "-m", "hub.services.snapshots.mirrors", "now"]
        process = subprocess.Popen(command, env=environ, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        give_up = time.monotonic() + KILL_SECONDS
        while process.poll() is None and set(watched.rglob("*")) == before:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(KILL_SECONDS)
    assert main_problems(hub, place) == 0
    assert len(snapshots(place / "ada", hub.state / PASSWORD)) == 2 + kills
    # A killed restic leaves its lock.
    assert "no errors were found" in restic(place / "ada", hub.state / PASSWORD, "check", "--read-data", "--no-lock")


def main_problems(hub: HubFiles, place: Path) -> int:
    """Mirror in another process, as an operator does, because a loop runs in this one."""
    command = [sys.executable, "-m", "hub.services.snapshots.mirrors", "now"]
    return subprocess.run(command, env={**os.environ, **hub.environ(str(place))}, cwd=ROOT, check=False).returncode


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    """A disk with 2 MiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "farandole-test", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.release
async def test_a_full_disk_is_named_and_loses_nothing(hub: HubFiles, small_disk: Path) -> None:
    mirror = hub.mirror(str(small_disk))
    assert await mirror.run() == []
    await hub.take("ada", os.urandom(8 << 20))
    [problem] = await mirror.run()
    assert f"The mirror at {small_disk} is full: " in problem
    assert "What it has stays" in problem
    assert len(snapshots(small_disk / "ada", hub.state / PASSWORD)) == 2
    restic(small_disk / "ada", hub.state / PASSWORD, "check", "--read-data")
