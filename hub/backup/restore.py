"""Restores a backup, in a process that has the hub's volumes. The hub is stopped."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole import __version__

from hub.backup.manifest import SETTINGS, Manifest
from hub.backup.place import BackupError
from hub.backup.repository import Repository
from hub.backup.retention import Backups
from hub.backup.state import DUMP, count_users, exclusive, hub_id
from hub.backup.swap import STAGED, commit, finish, install, mark_complete, stage, unstage
from spawner_config.operators.backup_record import BackupRecord

if TYPE_CHECKING:
    from hub.backup.job import Job

RESTORING = "restoring.part"
"""The file in the state folder with the name of the backup that is being restored. No backup contains it."""
RESERVE = 64 << 20
"""The bytes that a restore leaves free on each disk."""
BLOCK = 4096
"""Each file takes whole blocks of the disk."""


def choose(job: Job) -> dict[str, Any]:
    """Return the manifest of the backup to restore, and the operator's files in it; raises `BackupError`.

    Refused are an incomplete backup, one of another hub, of a newer version or of another deployment, and a hub with
    users or homes, unless the job permits it.
    """
    state, repository = Path(job.state), Repository(job.at, job.passphrase)
    found = Backups(repository, repository.snapshots())
    with exclusive(state):
        finish(state)
    manifest = found.manifest(_chosen(job, found, hub_id(state)))
    _check(job, manifest)
    users = job.users or count_users(state)
    # Homes without users may be from an interrupted restore of the same backup.
    mark = state / RESTORING
    homes = 0 if mark.exists() and mark.read_text(encoding="ascii") == manifest.id else job.homes
    if (users or homes) and not job.replace:
        raise BackupError(
            f"This hub has {users} users and {job.homes} homes, and nothing was changed. To replace it with the backup "
            f"{manifest.id}, add REPLACE=yes: what it has is backed up first."
        )
    settings = manifest.part(SETTINGS)
    names = repository.names(settings.snapshot) if settings else []
    texts = {name: repository.read(settings.snapshot, name) for name in names} if settings else {}
    return {"manifest": manifest.to_json(), "settings": texts, "replaces": bool(users or homes)}


def _chosen(job: Job, found: Backups, own: str) -> str:
    """Return the name of the backup to restore."""
    if job.backup in found.incomplete():
        raise BackupError(
            f"The backup {job.backup} is incomplete, because it was interrupted, and nothing was restored. Complete "
            f"are: {_listed(found.complete())}."
        )
    if job.backup:
        if job.backup not in found.complete():
            raise BackupError(f"There is no backup {job.backup}. Complete are: {_listed(found.complete())}.")
        _check_hub(job, found, job.backup, own)
        return job.backup
    complete = found.complete(own) or found.complete()
    if not complete:
        raise BackupError(
            f"No backup at {job.place} is complete, and nothing was restored. Interrupted were: "
            f"{_listed(found.incomplete())}."
        )
    if not own and len({found.hubs[each] for each in complete}) > 1:
        raise BackupError(
            f"The backups at {job.place} are of several hubs. Add BACKUP= with one of: {_listed(complete)}."
        )
    _check_hub(job, found, complete[-1], own)
    return complete[-1]


def _check_hub(job: Job, found: Backups, backup: str, own: str) -> None:
    if own and found.hubs[backup] != own and not job.other_hub:
        raise BackupError(
            f"The backup {backup} is of another hub, whose id is {found.hubs[backup]}. This hub's id is {own}, and "
            "nothing was changed. To restore it nevertheless, add OTHER_HUB=yes."
        )


def _check(job: Job, manifest: Manifest) -> None:
    if job.deployment and manifest.deployment != job.deployment:
        raise BackupError(
            f"The backup {manifest.id} is of a hub with FARANDOLE_DEPLOYMENT={manifest.deployment}, and this one has "
            f"{job.deployment}. Set up a hub of the same kind to restore it."
        )
    if job.deployment and manifest.database != job.database:
        raise BackupError(
            f"The backup {manifest.id} has a database of the kind {manifest.database}, and this hub one of the kind "
            f"{job.database}. Set FARANDOLE_DATABASE and COMPOSE_PROFILES as in the .env of the backup."
        )
    if _numbers(manifest.version) > _numbers(__version__):
        raise BackupError(
            f"The backup {manifest.id} was made by version {manifest.version}, and this is {__version__}. Install "
            f"version {manifest.version} or a newer one to restore it."
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version)[:3])


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def stage_all(job: Job) -> dict[str, Any]:
    """Restore all parts beside the present ones. Put homes that have volumes of their own in their place.

    Return the dump of the database, which is the next to be restored. Raises `BackupError`; the hub keeps its state.
    """
    repository = Repository(job.at, job.passphrase)
    manifest = Backups(repository, repository.snapshots(f"backup={job.backup}")).manifest(job.backup)
    with exclusive(Path(job.state)):
        staging = Staging(job, manifest, repository)
        staging.clean()
        staging.check_room()
        (Path(job.state) / RESTORING).write_text(manifest.id, encoding="ascii")
        return {"dump": staging.run()}


class Staging:
    """A restore until its commit."""

    def __init__(self, job: Job, manifest: Manifest, repository: Repository) -> None:
        self._job = job
        self._state = Path(job.state)
        self._parts = [part for part in manifest.parts if part.name != SETTINGS]
        self._manifest = manifest
        self._roots = dict.fromkeys(job.target(part.name)[0] for part in self._parts)
        self._repository = repository

    def clean(self) -> None:
        """Complete or remove what an interrupted restore has left."""
        finish(self._state)
        for root in self._roots:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_outside(root):
                install(root)
            unstage(root)

    def check_room(self) -> None:
        """Raise `BackupError` if a disk has no room for its parts."""
        needed: dict[int, int] = {}
        example: dict[int, Path] = {}
        for part in self._parts:
            root = self._job.target(part.name)[0]
            disk = root.stat().st_dev
            example[disk] = root
            needed[disk] = needed.get(disk, 0) + part.bytes + part.files * BLOCK
        for disk, root in example.items():
            free = shutil.disk_usage(root).free
            if free < needed[disk] + RESERVE:
                raise BackupError(
                    f"The disk of {root} has {free / 2**30:.2f} GiB free, and the backup needs "
                    f"{(needed[disk] + RESERVE) / 2**30:.2f} GiB. Make room, and try again; nothing was changed."
                )

    def run(self) -> str:
        """Restore all parts, and return the dump of the database, or an empty string."""
        try:
            return self._run()
        except BaseException:
            # What homes of their own have is whole, and everything else is as it was.
            for root in self._roots:
                if not (root / STAGED / "emptied").exists():
                    unstage(root)
            raise

    def _run(self) -> str:
        new = {root: stage(root) for root in self._roots}
        for part in self._parts:
            root, below = self._job.target(part.name)
            print(f"{part.name}: {part.files} files, {part.bytes / 2**20:.1f} MiB", file=sys.stderr)
            (new[root] / below).mkdir(mode=0o700, parents=True, exist_ok=True)
            if part.snapshot:
                self._repository.restore(part.snapshot, new[root] / below)
        for root in self._roots:
            if root != self._state:
                mark_complete(root)
            if self._is_outside(root):
                install(root)
        record = BackupRecord(
            id=self._manifest.id, time=self._manifest.time, place=self._job.place, bytes=self._manifest.bytes
        )
        record.write(new[self._state])
        dump = new[self._state] / DUMP
        if not dump.exists():
            return ""
        text = dump.read_text(encoding="utf-8")
        dump.unlink()
        return text

    def _is_outside(self, root: Path) -> bool:
        return not root.is_relative_to(self._state)


def commit_state(job: Job) -> dict[str, Any]:
    """Put the staged state in the place of the present one."""
    state = Path(job.state)
    with exclusive(state):
        commit(state)
        (state / RESTORING).unlink(missing_ok=True)
    return {}


def list_backups(job: Job) -> dict[str, Any]:
    """Return the manifests of all complete backups, and the names of the incomplete ones."""
    repository = Repository(job.at, job.passphrase)
    found = Backups(repository, repository.snapshots())
    return {
        "complete": [found.manifest(each).to_json() for each in found.complete()],
        "incomplete": found.incomplete(),
    }
