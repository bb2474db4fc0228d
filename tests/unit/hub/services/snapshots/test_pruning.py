"""Tests for the removal of old snapshots, with the real restic."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from hub.services.snapshots.pruning import MESSAGE_TAG, Pruner
from hub.services.snapshots.repository import LOCK_SECONDS, BusyError
from hub.services.snapshots.retention import DAY, HOUR, Retention
from hub.services.snapshots.store import Store
from spawner_config.origins.hosts import host_label
from spawner_config.settings import ROOT
from tests.clients.forger import Forger

if TYPE_CHECKING:
    from pathlib import Path

    from hub.services.snapshots.repository import Repository

PRUNE = """
import asyncio, pathlib, sys
from hub.services.snapshots.pruning import Pruner
from hub.services.snapshots.retention import Retention
from hub.services.snapshots.store import Store

store = Store(pathlib.Path(sys.argv[1]), 1 << 30)
store.start()
asyncio.run(Pruner(store, Retention(hours=24, days=30, message_days=365)).prune("ada"))
"""
RULE = Retention(hours=24, days=30, message_days=365)


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    """A store in which ada has a repository."""
    found = Store(tmp_path, 1 << 30)
    found.start()
    await found.open("ada")
    return found


@pytest.fixture
async def repository(store: Store) -> Repository:
    """The repository of ada."""
    found = await store.of("ada")
    assert found is not None
    return found


async def backup(store: Store, repository: Repository, *options: str, age: float) -> str:
    """Take a snapshot with some content of its own that arrived so many seconds ago, and return its id."""
    home = store.folder.parent / "home"
    home.mkdir(exist_ok=True)
    (home / "data.bin").write_bytes(os.urandom(1 << 16))
    before = {name for name, _ in repository.files("snapshots")}
    await store.restic._run(repository.folder, "backup", str(home), *options)
    [name] = {name for name, _ in repository.files("snapshots")} - before
    arrived = time.time() - age
    os.utime(repository.path("snapshots", name), (arrived, arrived))
    repository.used = repository.count()
    return name


def ids(repository: Repository) -> set[str]:
    return {name for name, _ in repository.files("snapshots")}


async def test_forged_times_and_hosts_evict_nothing(store: Store, repository: Repository) -> None:
    day = DAY - DAY / 1000
    first = await backup(store, repository, "--time", "2040-01-01 00:00:00", age=10 * DAY)
    old = await backup(store, repository, "--time", "2040-01-01 00:00:01", age=45 * DAY)
    forged = [
        await backup(store, repository, "--time", f"2001-01-01 00:00:0{number}", "--host", f"h{number}", age=5 * number)
        for number in range(3)
    ]
    message = await backup(store, repository, "--time", "1999-01-01 00:00:00", "--tag", "message=x", age=300 * day)
    used = repository.used
    assert await Pruner(store, RULE).prune("ada") == 1
    assert ids(repository) == {first, message, *forged}
    assert old not in ids(repository)
    assert repository.used < used
    # It raises an error if the repository is damaged.
    await store.restic._run(repository.folder, "check", "--read-data")
    assert repository.files("locks") == []


@pytest.mark.parametrize("genuine", [pytest.param(True, marks=pytest.mark.release), False])
async def test_a_forged_copy_does_not_replace_the_data_that_it_claims_to_be(
    store: Store, repository: Repository, genuine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """When restic prunes, it keeps one of several copies, without reading it."""
    kept = await backup(store, repository, "--tag", f"{MESSAGE_TAG}x", age=2 * DAY)
    content = (store.folder.parent / "home" / "data.bin").read_bytes()
    old = await backup(store, repository, age=45 * DAY)
    last = await backup(store, repository, age=0)
    run = partial(store.restic._run, repository.folder)
    indexes = [json.loads(await run("cat", "index", name)) for name, _ in repository.files("index")]
    forger = Forger(repository.folder, store.password("ada"))
    pack, snapshot = forger.copy_packs(indexes, genuine=genuine)
    await Pruner(store, RULE).prune_all()
    assert (old in ids(repository)) != genuine
    assert (
        f"ada cannot be pruned: files in data do not contain what they claim: {pack.name}" in caplog.text
    ) != genuine
    if not genuine:
        # What an administrator does then.
        pack.unlink()
        await run("forget", snapshot)
        await run("rebuild-index")
        await Pruner(store, RULE).prune_all()
    assert {kept, last} <= ids(repository)
    assert old not in ids(repository)
    await run("check", "--read-data")
    await run("restore", kept, "--target", str(store.folder.parent / "back"))
    [restored] = (store.folder.parent / "back").rglob("data.bin")
    assert restored.read_bytes() == content


async def test_a_message_is_what_the_tag_of_the_users_program_says(store: Store, repository: Repository) -> None:
    kept = await backup(store, repository, "--tag", f"{MESSAGE_TAG}before%20cleaning", age=40 * DAY)
    await backup(store, repository, "--tag", "other", age=41 * DAY)
    last = await backup(store, repository, age=0)
    assert await Pruner(store, RULE).prune("ada") == 1
    assert ids(repository) == {kept, last}


async def test_a_repository_in_use_is_not_pruned(store: Store, repository: Repository) -> None:
    await backup(store, repository, age=40 * DAY)
    await backup(store, repository, age=0)
    lock = repository.path("locks", "a" * 64)
    lock.write_bytes(b"a user's")
    pruner = Pruner(store, RULE)
    with pytest.raises(BusyError, match="in use"):
        await pruner.prune("ada")
    await pruner.prune_all()
    assert len(ids(repository)) == 2
    taken = repository.begin("data", 1)
    old = time.time() - LOCK_SECONDS - 1
    os.utime(lock, (old, old))
    with pytest.raises(BusyError, match="in use"):
        await pruner.prune("ada")
    repository.end(taken, kept=False)
    # A user who writes a time in the future into a lock cannot keep it for ever.
    await pruner.prune_all()
    assert len(ids(repository)) == 1
    assert repository.files("locks") == []


async def test_locks_that_are_too_old_are_removed_although_no_snapshot_is(store: Store, repository: Repository) -> None:
    old, valid = (repository.path("locks", letter * 64) for letter in "ab")
    for lock, age in ((old, LOCK_SECONDS + 1), (valid, LOCK_SECONDS - 60)):
        lock.write_bytes(b"a user's")
        os.utime(lock, (time.time() - age, time.time() - age))
    pruner = Pruner(store, RULE)
    await pruner.prune_all()
    assert [name for name, _ in repository.files("locks")] == [valid.name]
    os.utime(valid, (time.time() - LOCK_SECONDS - 1, time.time() - LOCK_SECONDS - 1))
    # Within the day, too.
    await pruner.prune_all()
    assert repository.files("locks") == []


async def test_a_file_that_is_no_snapshot_stays_and_stops_only_its_users_pruning(
    store: Store, repository: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    await store.open("grace")
    other = await store.of("grace")
    assert other is not None
    for each in (repository, other):
        await backup(store, each, age=40 * DAY)
        await backup(store, each, age=0)
    content = b"no snapshot"
    name = hashlib.sha256(content).hexdigest()
    repository.path("snapshots", name).write_bytes(content)
    pruner = Pruner(store, RULE)
    await pruner.prune_all()
    assert name in ids(repository)
    assert "The snapshots in ada cannot be pruned: restic" in caplog.text
    assert len(ids(other)) == 1
    # It does not delay the others each hour.
    caplog.clear()
    await pruner.prune_all()
    assert caplog.text == ""


async def test_users_cannot_change_a_repository_that_is_pruned(store: Store, repository: Repository) -> None:
    with repository.pruning(store.mark("ada")):
        with pytest.raises(BusyError, match="prunes these snapshots"):
            repository.check_changeable()
        with pytest.raises(BusyError):
            repository.begin("locks", 1)
    repository.check_changeable()
    assert not store.mark("ada").exists()


async def test_other_folders_on_the_disk_are_no_repositories(store: Store, repository: Repository) -> None:
    await store.open("zoë/1")
    for name in ("lost+found", ".mirrors", "Ada", "u-x--y", "a" * 64):
        (store.folder / name).mkdir()
    assert list(store.names()) == [repository.folder.name, host_label("zoë/1")]


async def test_the_locks_of_a_killed_pruning_are_removed(store: Store, repository: Repository) -> None:
    store.mark("ada").touch()
    repository.path("locks", "a" * 64).write_bytes(b"the hub's")
    (store.parts / "half").write_bytes(b"x")
    Store(store.folder.parent, 1 << 30).start()
    assert repository.files("locks") == []
    assert list(store.parts.iterdir()) == []
    assert not store.mark("ada").exists()


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=[pytest.mark.release, pytest.mark.timeout(3600)])])
async def test_a_killed_pruning_damages_nothing(store: Store, repository: Repository, kills: int) -> None:
    kept = await backup(store, repository, "--tag", f"{MESSAGE_TAG}x", age=40 * DAY)
    last = await backup(store, repository, age=0)
    choice = random.Random(24)
    for _ in range(kills):
        await backup(store, repository, age=50 * DAY)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", PRUNE, store.folder.parent, cwd=ROOT)
        # The pruning takes two or three seconds.
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), choice.uniform(0.5, 3))
        if process.returncode is None:
            process.kill()
            await process.wait()
        Store(store.folder.parent, 1 << 30).start()
        await store.restic._run(repository.folder, "check", "--read-data")
        assert {kept, last} <= ids(repository)
    await Pruner(store, RULE).prune("ada")
    assert ids(repository) == {kept, last}


async def test_a_repository_is_pruned_once_a_day_and_not_without_need(store: Store, repository: Repository) -> None:
    runs: list[Any] = []

    class Counting(Pruner):
        async def prune(self, name: str) -> int:
            runs.append(name)
            return await super().prune(name)

    pruner = Counting(store, RULE)
    await backup(store, repository, age=2 * HOUR)
    await pruner.prune_all()
    await pruner.prune_all()
    assert runs == ["ada"]
    assert json.loads(await store.restic._run(repository.folder, "snapshots", "--json"))
