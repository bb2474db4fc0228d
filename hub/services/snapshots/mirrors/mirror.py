"""Copies the hub's state and the repositories of all users to a second place, and back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import sqlite3
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Self

from hub.services.snapshots.mirrors.place import MirrorError, MirrorPlace
from hub.services.snapshots.mirrors.restic import MirrorRestic, MissingError
from hub.services.snapshots.mirrors.state import copy_state
from hub.services.snapshots.repository import BusyError
from hub.services.snapshots.restic import PROBLEMS, ResticError
from hub.services.snapshots.retention import HOUR
from spawner_config.origins.hosts import host_label
from spawner_config.settings import ensure_secret
from spawner_config.snapshots.mirrors import MirrorSettings
from spawner_config.snapshots.record import MirrorRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hub.services.snapshots.repository import Repository
    from hub.services.snapshots.store import Store

PASSWORD = "snapshots_mirror_password"
"""The file with the password of all repositories of the mirror, in the hub's state folder."""
STATE = "_hub"
"""The repository with the hub's own state. The names of users' repositories have no underscore."""
WAIT_SECONDS = 60.0
"""How long a mirror waits for the end of a pruning."""

log = logging.getLogger("farandole.snapshots")


class Mirror:
    """A mirror of the hub. It has a repository for the hub's state and one for the snapshots of each user.

    The hub never removes anything from a mirror, so that an attacker who controls the hub cannot destroy it.
    """

    def __init__(self, store: Store, place: MirrorPlace, hours: int) -> None:
        """Mirror the store to a place, every so many hours."""
        self._store = store
        self._place = place
        self._hours = hours
        password = store.state / PASSWORD
        if not password.exists():
            log.warning("%s is the password of the mirror. Keep a copy of it elsewhere.", password)
        ensure_secret(password)
        self.restic = MirrorRestic(place, password, store.secret_file)

    @classmethod
    def from_environment(cls, store: Store, environ: Mapping[str, str]) -> Self | None:
        """Return the mirror that the FARANDOLE_ variables describe, or None if there is none."""
        found = MirrorSettings.from_environment(environ)
        if not found.snapshots_mirror:
            return None
        place = MirrorPlace(
            address=found.snapshots_mirror, user=found.snapshots_mirror_user, secret=found.snapshots_mirror_secret
        )
        return cls(store, place, found.snapshots_mirror_hours)

    def record(self) -> MirrorRecord:
        """Return what became of the last attempt to mirror to this place."""
        found = MirrorRecord.read(self._store.state)
        if found is not None and found.place == self._place.address:
            return found
        # All has to be copied to another place, but this hub may have been restored and know users from its record.
        return MirrorRecord(place=self._place.address, users=found.users if found else {})

    async def run_if_due(self) -> None:
        """Mirror if it is time to do so, and log what went wrong."""
        if time.time() - self.record().finished < self._hours * HOUR:
            return
        problems = await self.run()
        for problem in problems:
            log.error("Mirror: %s", problem)
        if not problems:
            log.info("The hub is mirrored to %s.", self._place.address)

    async def run(self, *, everything: bool = False) -> list[str]:
        """Mirror the hub's state, then the repositories with new snapshots, or all of them. Return what went wrong.

        - A problem of one repository does not keep the others from being copied.
        - What has been copied stays when the mirror is interrupted, and the next attempt copies the rest.
        - The first attempt creates the mirror, as does an attempt with ``everything``. Otherwise, a mirror that is
          empty is an error, because its disk may not be mounted.
        """
        try:
            async with self._store.maintenance(WAIT_SECONDS):
                return await self._run(everything=everything)
        except (BusyError, OSError) as exc:
            return [str(exc)]

    async def _run(self, *, everything: bool) -> list[str]:
        begun, earlier = time.time(), self.record()
        record = replace(earlier, problems=[], users=dict(earlier.users), copied=dict(earlier.copied))
        try:
            await asyncio.to_thread(self._place.check)
            await self._open(create=everything or not earlier.finished)
            await self._copy_all(record, everything=everything)
            record = replace(record, finished=begun)
        except MirrorError as exc:
            record.problems.append(str(exc))
        with _noting("What has been mirrored cannot be noted", record):
            await asyncio.to_thread(record.write, self._store.state)
        return record.problems

    async def _open(self, *, create: bool) -> None:
        try:
            if not await self.restic.exists(STATE):
                if not create:
                    raise MirrorError(
                        f"The mirror at {self._place.address} is empty, but has been used before. Mount its disk, or "
                        "create a new mirror there with `python -m hub.services.snapshots.mirrors now`."
                    )
                await self.restic.init(STATE)
        except (ResticError, OSError) as exc:
            raise MirrorError(f"The mirror at {self._place.address} cannot be opened: {_reason(exc)}.") from exc

    async def _copy_all(self, record: MirrorRecord, *, everything: bool) -> None:
        for name in self._store.names():
            if (repository := await self._store.named(name)) is not None:
                with _noting(f"The snapshots in {name} are not mirrored", record):
                    record.users[name] = await asyncio.to_thread(_user_of, repository)
        with _noting("The hub's state is not mirrored", record):
            await self._copy_state(record)
        for name in record.users:
            if (repository := await self._store.named(name)) is not None:
                with _noting(f"The snapshots of {record.users[name]} are not mirrored", record):
                    await self._copy_alone(repository, name, record, everything=everything)

    async def _copy_state(self, record: MirrorRecord) -> None:
        state = self._store.state
        await asyncio.to_thread(record.write, state)
        # With the same folder each time, restic compares with the last snapshot.
        copy = self._store.own / "state"
        await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)
        try:
            await asyncio.to_thread(copy_state, state, copy)
            await self.restic.backup(copy, STATE)
        except sqlite3.Error as exc:
            raise OSError(f"the database cannot be copied: {exc}") from exc
        finally:
            await asyncio.to_thread(shutil.rmtree, copy, ignore_errors=True)

    async def _copy_alone(self, repository: Repository, name: str, record: MirrorRecord, *, everything: bool) -> None:
        """Copy a repository. A `MirrorError` is one of this repository if the hub's state can be mirrored.

        restic's errors contain what a user has written into a snapshot, for example that the disk is full.
        """
        try:
            await self._copy(repository, name, record, everything=everything)
        except MirrorError as exc:
            with suppress(*PROBLEMS):
                await self._copy_state(record)
            raise ResticError(str(exc)) from exc

    async def _copy(self, repository: Repository, name: str, record: MirrorRecord, *, everything: bool) -> None:
        """Copy a repository. The names of its snapshots are read first: those that arrive meanwhile come next time."""
        names = [each for each, _ in await asyncio.to_thread(repository.files, "snapshots")]
        found = hashlib.sha256("\n".join(names).encode()).hexdigest()
        if not names or (record.copied.get(name) == found and not everything):
            return
        try:
            await self.restic.copy(repository.folder, name)
        except MissingError:
            await self.restic.init(name, repository.folder)
            await self.restic.copy(repository.folder, name)
        record.copied[name] = found

    async def check(self, *, read_data: bool = False) -> tuple[dict[str, int], list[str]]:
        """Check all repositories of the mirror. Return how many snapshots each has, and what went wrong.

        Raises `MirrorError` if the mirror cannot be reached, and `BusyError` while another process changes it.
        """
        record = replace(self.record(), problems=[])
        counts: dict[str, int] = {}
        await asyncio.to_thread(self._place.check)
        async with self._store.maintenance(WAIT_SECONDS):
            for name in (STATE, *record.copied):
                with _noting(f"The mirror of {name} is not intact", record):
                    await self.restic.check(name, read_data=read_data)
                    counts[name] = len(await self.restic.snapshots(name))
        return counts, record.problems

    async def restore(self, user: str) -> int:
        """Copy a user's snapshots from the mirror into the user's repository, and return how many are new there.

        Snapshots are pruned by the time of their arrival. The new ones get the time that is written in them instead,
        or the hub would soon remove nearly all of them. Raises `MirrorError` or `ResticError`.
        """
        if not await self.restic.exists(host_label(user)):
            raise MissingError(f"The mirror at {self._place.address} has no snapshots of {user}.")
        repository = await self._store.open(user)
        async with self._store.maintenance(WAIT_SECONDS):
            before = {name for name, _ in repository.files("snapshots")}
            await self.restic.restore(repository.folder.name, repository.folder)
            records = await self._store.restic.snapshots(repository.folder)
            new = [each for each in records if each["id"] not in before]
            for each in new:
                # A user can write any time into a snapshot, also one that Python does not know.
                with suppress(ValueError, OverflowError):
                    taken = min(datetime.fromisoformat(each["time"]).timestamp(), time.time())
                    os.utime(repository.path("snapshots", each["id"]), (taken, taken))
        return len(new)


def _user_of(repository: Repository) -> str:
    """Return the owner of a repository, whom the hub has written into the user's key."""
    for name, _ in repository.files("keys"):
        key = json.loads(repository.path("keys", name).read_text(encoding="utf-8"))
        if key.get("hostname") == "hub":
            return str(key["username"])
    raise ValueError("the repository has no key of a user")


@contextmanager
def _noting(what: str, record: MirrorRecord) -> Iterator[None]:
    """Add a problem of one repository to the record."""
    try:
        yield
    except PROBLEMS as exc:
        record.problems.append(f"{what}: {_reason(exc)}.")


def _reason(error: Exception) -> str:
    return str(error).rstrip(".")
