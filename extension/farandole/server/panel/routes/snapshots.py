"""The panel's routes for snapshots: lists, folders and versions of files, and what takes and restores them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path, PurePath

from jupyter_server.utils import ApiPath, to_os_path

from farandole.exceptions import UsageError
from farandole.reading import printable
from farandole.server.panel import wire_routes
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.routes.clusters import PanelHandler, requires, typed
from farandole.server.panel.snapshots.jobs import Outcome
from farandole.server.panel.snapshots.messages import (
    entry_message,
    snapshot_message,
    unread_notices,
    version_messages,
)

SNAPSHOTS = 100
MOST_SNAPSHOTS = 1000
ENTRIES = 50
MOST_ENTRIES = 1000
MOST_VERSIONS = 500


class _Handler(PanelHandler):
    """Base class of these routes. It has no methods for requests, which all routes would inherit."""

    def page(self, default: int, most: int) -> tuple[int, int]:
        """Return the query's offset and its limit, which is at least 1 and at most ``most``."""
        return max(0, self.number("offset", 0)), min(max(1, self.number("limit", default)), most)

    def path_of(self, name: str) -> str:
        """Return a path from the query. Tornado's method would replace control characters, which names may have."""
        values = self.request.query_arguments.get(name, [b""])
        return values[-1].decode(errors="surrogateescape")


class SnapshotsHandler(_Handler):
    """``GET snapshots`` returns a page of the list of snapshots, and ``POST snapshots`` takes a snapshot."""

    @requires("read")
    async def get(self) -> None:
        """Respond with the snapshots from the query's offset, newest first."""
        offset, limit = self.page(SNAPSHOTS, MOST_SNAPSHOTS)
        found = await self.panel.snapshots.refresh()
        page = [snapshot_message(one) for one in found[offset : offset + limit]]
        taking, problem = self.panel.snapshot_jobs.taking, self.problem(found[0].time if found else 0.0)
        self.answer({"snapshots": page, "offset": offset, "total": len(found), "taking": taking, "problem": problem})

    @requires("write")
    async def post(self) -> None:
        """Take a snapshot, and respond with the job, which may go on."""
        message = _text(typed(self.body(), "message", str), "message").strip()
        snapshots, jobs = self.panel.snapshots.snapshots, self.panel.snapshot_jobs
        job = jobs.take(lambda: Outcome(notices=unread_notices(snapshots.take(message))))
        self.answer(await jobs.message(job), 202)

    def problem(self, newest: float) -> str | None:
        """Return why no automatic snapshot was taken after the newest one. Another server may have taken that."""
        automatic = self.panel.automatic_snapshots
        failure = automatic.failure if automatic else None
        return failure.reason if failure and failure.time > newest else None


class JobHandler(_Handler):
    """``GET snapshots/jobs/JOB`` returns the result of a job, or that it goes on."""

    @requires("read")
    async def get(self, job: str) -> None:
        """Respond when the job is done, or after some seconds."""
        self.answer(await self.panel.snapshot_jobs.message(job))


class ChangesHandler(_Handler):
    """``GET snapshots/ID/changes`` returns how much has changed since the snapshot before."""

    @requires("read")
    async def get(self, snapshot: str) -> None:
        """Respond with the numbers of files and bytes."""
        found = await self.panel.snapshots.changes(snapshot)
        files, added = found or (None, None)
        self.answer({"id": snapshot, "files": files, "added": added})


class FilesHandler(_Handler):
    """``GET snapshots/ID/files`` returns a page of a folder in a snapshot."""

    @requires("read")
    async def get(self, snapshot: str) -> None:
        """Respond with the entries from the query's offset."""
        path = home_path(self.path_of("path"))
        offset, limit = self.page(ENTRIES, MOST_ENTRIES)
        reader = self.panel.snapshots
        found = await reader.folder(await reader.find(snapshot), path)
        here = reader.snapshots.home / path

        def entries() -> list[wire_routes.SnapshotEntry]:
            return [entry_message(here, one) for one in found[offset : offset + limit]]

        page = await asyncio.to_thread(entries)
        self.answer({"id": snapshot, "path": _wire(path), "entries": page, "offset": offset, "total": len(found)})


class VersionsHandler(_Handler):
    """``GET snapshots/versions`` returns the snapshots that have a file or folder.

    The query has its ``path`` in the home, or the path ``file`` of JupyterLab's file browser, below the server's root.
    """

    @requires("read")
    async def get(self) -> None:
        """Respond with the newest of these snapshots."""
        file = self.path_of("file")
        reader = self.panel.snapshots
        if file:
            path = await asyncio.to_thread(reader.snapshots.relative, self.place_of(file))
        else:
            path = home_path(self.path_of("path"))
        found = await reader.versions(path)
        place = reader.snapshots.home / path
        newest = await asyncio.to_thread(lambda: version_messages(place, found)[:MOST_VERSIONS])
        self.answer({"path": _wire(path), "versions": newest, "total": len(found)})

    def place_of(self, file: str) -> Path:
        """Return where a file of JupyterLab's file browser is."""
        root = Path(self.settings["server_root_dir"]).expanduser()
        return Path(to_os_path(ApiPath(_text(file, "path")), str(root)))


class RestoreHandler(_Handler):
    """``POST snapshots/ID/restore`` restores a file or folder. Nothing is overwritten."""

    @requires("write")
    async def post(self, snapshot: str) -> None:
        """Restore it, and respond with the job, which may go on."""
        body = self.body()
        path, keep_both = home_path(typed(body, "path", str)), typed(body, "keep_both", bool)
        to = None if body.get("to") is None else typed(body, "to", str)
        reader, jobs = self.panel.snapshots, self.panel.snapshot_jobs
        home, id_ = reader.snapshots.home, (await reader.find(snapshot)).id
        place, folder = home / path, None if to is None else _folder(home, to)
        if not path.name:
            raise UsageError("name a file or folder of the snapshot, not all of your home")
        target = place if folder is None else folder / place.name
        if not keep_both and await asyncio.to_thread(os.path.lexists, target):
            raise RefusedError("exists", f"{_shown(home, target)} exists, and nothing is overwritten.")

        def work() -> Outcome:
            found = reader.snapshots.restore_entry(path, id_, folder, keep_both=keep_both)
            return Outcome(path=_shown(home, found))

        self.answer(await jobs.message(jobs.start(work)), 202)


def home_path(text: str) -> PurePath:
    """Return a path in the home, relative to it. Raises UsageError if it is none."""
    path = PurePath(_text(text, "path"))
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(f"{text[:200]!r} is not a path in your home; write one such as 'data/clicks.csv'")
    return path


def _folder(home: Path, text: str) -> Path:
    """Return the folder that a user has named, by default one in the home. Raises UsageError if it is none."""
    if not text.strip():
        raise UsageError("name a folder, such as 'restored'")
    return home / os.path.expanduser(_text(text.strip(), "folder"))  # noqa: PTH111 - it keeps unknown users


def _text(text: str, what: str) -> str:
    """Return a text that can be an argument of a program. Raises UsageError for a text that cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"the {what} has characters that are not valid in UTF-8") from exc
    if "\0" in text:
        raise UsageError(f"the {what} must not contain a null character")
    return text


def _shown(home: Path, place: Path) -> str:
    """Return a path as the user reads it, with ``~`` for the home."""
    shown = f"~/{place.relative_to(home)}" if place.is_relative_to(home) else str(place)
    return printable(os.fsencode(shown).decode(errors="replace"))


def _wire(path: PurePath) -> str:
    """Return a path relative to the home as messages have it. The home itself is empty."""
    return os.fsencode(path).decode(errors="replace") if path.name else ""
