"""Reads the user's snapshots in threads. What cannot change is read only once."""

from __future__ import annotations

import asyncio
from pathlib import PurePath
from urllib.error import HTTPError

from farandole.exceptions import SnapshotError
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.snapshots.threads import in_thread
from farandole.snapshots.contents import ChangeCount, Entry, SnapshotContents
from farandole.snapshots.model import Snapshot, Version

MOST_ENTRIES = 200_000
"""The number of entries of folders that are kept in memory. The last folder is kept however many it has."""

REFUSED = {401, 403}
"""The hub's status codes for a token that it does not accept."""


class SnapshotReader:
    """The lists of snapshots, folders and versions that the open pages of a notebook server show."""

    def __init__(self, snapshots: SnapshotContents) -> None:
        """Make a reader of these snapshots."""
        self.snapshots = snapshots
        self._known: list[Snapshot] = []
        self._folders: dict[tuple[str, PurePath], list[Entry]] = {}
        self._changes: dict[tuple[str, str], ChangeCount] = {}
        # A page may ask for the changes of many snapshots, and each answer takes about a second of processor time.
        self._counting = asyncio.Lock()

    async def refresh(self) -> list[Snapshot]:
        """Return all snapshots, newest first. Raises RefusedError if the hub has none for its users."""
        try:
            self._known = await in_thread(lambda: self.snapshots.list()[::-1])
        except SnapshotError as exc:
            if _is_off(exc):
                raise RefusedError("unknown", str(exc)) from exc
            raise
        return self._known

    async def find(self, id_: str) -> Snapshot:
        """Return the snapshot with an id. Raises RefusedError if there is none."""
        place = await self._place(id_)
        return self._known[place]

    async def changes(self, id_: str) -> ChangeCount | None:
        """Return what differs from the snapshot before, or None for the oldest snapshot."""
        async with self._counting:
            place = await self._place(id_)
            newer, *older = self._known[place : place + 2]
            if not older:
                return None
            key = older[0].id, newer.id
            if key not in self._changes:
                self._changes[key] = await in_thread(lambda: self.snapshots.changes(older[0], newer))
            return self._changes[key]

    async def folder(self, snapshot: Snapshot, path: PurePath) -> list[Entry]:
        """Return what is in a folder of a snapshot. Raises RefusedError if the snapshot has no such folder."""
        key = snapshot.id, path
        found = self._folders.pop(key, None)
        if found is None:
            found = await in_thread(lambda: self.snapshots.folder(snapshot, path))
        if found is None:
            raise RefusedError("unknown", f"the snapshot {snapshot.short_id} has no folder {str(path)[:200]!r}")
        self._folders[key] = found
        while len(self._folders) > 1 and sum(map(len, self._folders.values())) > MOST_ENTRIES:
            # The folder that was not used for the longest time is the first one.
            self._folders.pop(next(iter(self._folders)))
        return found

    async def versions(self, path: PurePath) -> list[Version]:
        """Return the snapshots that have a file or folder of the home, newest first."""
        return await in_thread(lambda: self.snapshots.versions(path)[::-1])

    async def _place(self, id_: str) -> int:
        """Return the place of a snapshot in the list, which is read again if it does not have the snapshot."""
        if all(one.id != id_ for one in self._known):
            await self.refresh()
        for place, one in enumerate(self._known):
            if one.id == id_:
                return place
        raise RefusedError("unknown", f"there is no snapshot {id_[:8]!r} any more; load the list again")


def _is_off(error: SnapshotError) -> bool:
    """Return whether the hub has no service for snapshots, because it then has no page at the service's address."""
    return isinstance(error.__cause__, HTTPError) and error.__cause__.code < 500 and error.__cause__.code not in REFUSED
