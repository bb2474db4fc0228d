"""Removes snapshots that are too old, when nobody uses the repository."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hub.services.snapshots.repository import BusyError, Repository
from hub.services.snapshots.restic import PROBLEMS
from hub.services.snapshots.retention import DAY, Snapshot

if TYPE_CHECKING:
    from hub.services.snapshots.retention import Retention
    from hub.services.snapshots.store import Store

MESSAGE_TAG = "message="
"""The beginning of the tag with the message of a user, as in `farandole.snapshots`."""

log = logging.getLogger("farandole.snapshots")


class Pruner:
    """Prunes repositories, each at most once a day."""

    def __init__(self, store: Store, retention: Retention) -> None:
        """Prune the repositories in the store."""
        self._store = store
        self._retention = retention
        self._pruned: dict[str, float] = {}

    async def prune_all(self) -> None:
        """Prune all repositories that are not in use, one after another, and remove their old locks.

        An error concerns one repository only, which is tried again after a day: until then, it delays no other.
        """
        for name in self._store.names():
            with suppress(BusyError):
                await self._prune_if_due(name)

    async def _prune_if_due(self, name: str) -> None:
        try:
            if (repository := await self._store.named(name)) is not None:
                repository.remove_old_locks(time.time())
            if time.time() - self._pruned.get(name, 0.0) < DAY:
                return
            if removed := await self.prune(name):
                log.info("%d snapshots in %s were too old", removed, name)
        except PROBLEMS as exc:
            log.error("The snapshots in %s cannot be pruned: %s", name, exc)
        self._pruned[name] = time.time()

    async def prune(self, name: str) -> int:
        """Remove the snapshots that are not kept, and return their number.

        Raises `BusyError` if the repository is in use, `ResticError` or OSError.
        """
        repository = await self._store.named(name)
        # restic needs a second to read messages, so it runs only if some snapshot would expire without one.
        if repository is None or not self._retention.expired(await _arrivals(repository), time.time()):
            return 0
        async with self._store.maintenance():
            with repository.pruning(self._store.mark(name)):
                expired = self._retention.expired(await self._with_messages(repository), time.time())
                if expired:
                    await self._store.restic.check_copies(repository.folder)
                    await self._forget(repository, expired)
        return len(expired)

    async def _forget(self, repository: Repository, expired: list[str]) -> None:
        try:
            await self._store.restic.forget(repository.folder, expired)
        finally:
            repository.used = await asyncio.to_thread(repository.count)

    async def _with_messages(self, repository: Repository) -> list[Snapshot]:
        """Return the valid snapshots. Other files in the folder are kept, and count toward the user's limit."""
        records = {record["id"]: record for record in await self._store.restic.snapshots(repository.folder)}
        return [
            Snapshot(id=each.id, arrived=each.arrived, has_message=_has_message(records[each.id]))
            for each in await _arrivals(repository)
            if each.id in records
        ]


async def _arrivals(repository: Repository) -> list[Snapshot]:
    def read() -> list[Snapshot]:
        kind = "snapshots"
        return [
            Snapshot(id=name, arrived=repository.path(kind, name).stat().st_mtime) for name, _ in repository.files(kind)
        ]

    return await asyncio.to_thread(read)


def _has_message(record: dict[str, Any]) -> bool:
    return any(tag.startswith(MESSAGE_TAG) for tag in record.get("tags") or [])
