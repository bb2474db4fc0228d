"""Makes a backup, in a process that has the hub's volumes. The hub may run meanwhile."""

from __future__ import annotations

import fcntl
import secrets
import shutil
import sqlite3
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from farandole import __version__

from hub.backup.manifest import FILE, MANIFEST, REPOSITORIES, SETTINGS, STATE, Manifest, Part
from hub.backup.place import BackupError
from hub.backup.repository import EmptyFolderError, MissingRepositoryError, Repository
from hub.backup.retention import remove_old
from hub.backup.state import DUMP, exclusive, hub_id, schema_of
from hub.backup.swap import STAGED, finish
from hub.services.snapshots.mirrors.state import copy_files
from spawner_config.operators.backup_record import BackupRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.backup.job import Job

COPY = ".backup"
"""The folder for copies in the state folder."""
MOST_UNREAD = 5
"""The number of files in a part that are named because they could not be read."""
PASSES = {
    f"{REPOSITORIES}/1": ("*/config", "*/data", "*/index", "*/keys", "*/locks/*"),
    f"{REPOSITORIES}/2": ("*/data", "*/locks/*", "*/snapshots"),
    f"{REPOSITORIES}/3": ("*/config", "*/index", "*/keys", "*/locks/*", "*/snapshots"),
}
"""What each part with users' snapshots leaves out.

Users add snapshots meanwhile: restic stores the data first, then its index, then the snapshot. In the opposite order,
each snapshot that is copied has its index, and each index has its data.
"""
OWN = (".mirrors", ".service")
"""What is in the same folder, but belongs to other hubs or to the running service."""


def save(job: Job) -> Manifest:
    """Make a backup, record it in the state folder, and remove old ones. Raises `BackupError`."""
    state = Path(job.state)
    if not state.is_dir():
        raise BackupError(f"There is no hub to back up: the state folder {state} does not exist.")
    with exclusive(state):
        finish(state)
        return Saving(job).run()


class Saving:
    """One backup that is being made."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._state = Path(job.state)
        self._copies = self._state / COPY
        self._repository = Repository(job.at, job.passphrase)
        self._hub = hub_id(self._state, create=True)
        self._begun = datetime.now(UTC)
        self._id = f"{self._begun:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        self._parts: list[Part] = []

    def run(self) -> Manifest:
        """Add all parts, then the manifest."""
        try:
            self._earlier = self._repository.snapshots(f"hub={self._hub}")
        except MissingRepositoryError:
            self._create()
            self._earlier = []
        try:
            manifest = self._add_all()
        finally:
            shutil.rmtree(self._copies, ignore_errors=True)
        BackupRecord(id=self._id, time=manifest.time, place=self._job.place, bytes=manifest.bytes).write(self._state)
        if self._job.keep:
            remove_old(self._repository, self._hub, self._job.keep)
        return manifest

    def _create(self) -> None:
        record = BackupRecord.read(self._state)
        if record is not None and record.place == self._job.place:
            raise BackupError(
                f"There is no backup at {record.place}, but the hub was backed up there, as {record.id}. Mount its "
                "disk, or choose another place."
            )
        self._repository.create()

    def _add_all(self) -> Manifest:
        shutil.rmtree(self._copies, ignore_errors=True)
        self._copies.mkdir(mode=0o700)
        schema = self._add_state()
        if self._job.settings:
            self._add_texts(SETTINGS, self._job.settings)
        if (self._state / "snapshots").is_dir():
            with _no_pruning(self._state / "snapshots"):
                for name, excluded in PASSES.items():
                    self._add(name, self._state / "snapshots", [*OWN, *excluded])
        for name in sorted(self._job.folders):
            root, below = self._job.target(name)
            self._add(name, root / below, [STAGED])
        manifest = Manifest(
            id=self._id,
            hub=self._hub,
            time=self._begun.isoformat(timespec="seconds"),
            version=__version__,
            schema=schema,
            deployment=self._job.deployment,
            database=self._job.database,
            parts=self._identified(),
        )
        self._add_texts(MANIFEST, {FILE: manifest.to_json()})
        return manifest

    def _identified(self) -> tuple[Part, ...]:
        """Return the parts with the full ids of their snapshots. restic reports the first digits of new ones."""
        ids = [str(each["id"]) for each in self._repository.snapshots(f"backup={self._id}")]
        return tuple(
            replace(part, snapshot=next(each for each in ids if each.startswith(part.snapshot)))
            if part.snapshot
            else part
            for part in self._parts
        )

    def _add_state(self) -> str:
        """Add the state, and return the revision of the database's schema."""
        copy = self._copies / STATE
        try:
            copy_files(self._state, copy)
        except (sqlite3.Error, OSError) as exc:
            raise BackupError(f"The hub's state in {self._state} cannot be copied: {exc}.") from exc
        if self._job.dump:
            _write(copy / DUMP, self._job.dump)
        self._add(STATE, copy)
        return self._job.schema or schema_of(copy)

    def _add_texts(self, name: str, texts: dict[str, str]) -> None:
        folder = self._copies / name
        folder.mkdir(mode=0o700)
        for file, text in texts.items():
            _write(folder / file, text)
        self._add(name, folder)

    def _add(self, name: str, folder: Path, exclude: list[str] | None = None) -> None:
        of_part = [each for each in self._earlier if f"part={name}" in each.get("tags", ())]
        try:
            added = self._repository.back_up(
                folder,
                (f"hub={self._hub}", f"backup={self._id}", f"part={name}"),
                parent=str(of_part[-1]["id"]) if of_part else "",
                exclude=exclude or (),
            )
        except EmptyFolderError:
            self._parts.append(Part(name=name, snapshot="", bytes=0, files=0, owner=self._job.owners.get(name, "")))
            return
        if added.unread:
            some = ", ".join(added.unread[:MOST_UNREAD])
            print(f"{name}: {len(added.unread)} files could not be read: {some}", file=sys.stderr)
        if name == MANIFEST:
            return
        print(f"{name}: {added.files} files, {added.bytes / 2**20:.1f} MiB", file=sys.stderr)
        self._parts.append(
            Part(
                name=name,
                snapshot=added.id,
                bytes=added.bytes,
                files=added.files,
                owner=self._job.owners.get(name, ""),
                unread=len(added.unread),
            )
        )


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


@contextmanager
def _no_pruning(snapshots: Path) -> Iterator[None]:
    """Keep the hub from removing snapshots of users in this context; it prunes once a day, see `Store.maintenance`."""
    path = snapshots / ".service" / "maintenance"
    if not path.exists():
        yield
        return
    with path.open(encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
