"""The public class `Snapshots`."""

from __future__ import annotations

import builtins
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from typing import overload

from farandole.exceptions import UsageError
from farandole.snapshots.choice import Choice, escaped, read_choice
from farandole.snapshots.connection import Repository, open_repository
from farandole.snapshots.model import Change, Snapshot, TakenSnapshot, Version, tags_of
from farandole.snapshots.moments import LATEST, snapshot_at
from farandole.snapshots.records import all_snapshots, summary, unread, versions
from farandole.snapshots.restic import HOST, Output, Restic
from farandole.snapshots.restore import inside, restore, shown

UNREAD = 3
"""restic's exit code if it has taken a snapshot, but could not read some of the files."""


class Snapshots:
    """The snapshots of the user's home at the hub. Snapshots can be added and read, and not deleted."""

    def __init__(
        self,
        *,
        home: Path | None = None,
        connect: Callable[[], Repository] = open_repository,
        background: bool = False,
    ) -> None:
        """Make an object for the snapshots of ``home``.

        Args:
            home: the folder, by default the user's home.
            connect: a function that returns the repository, by default that at the hub.
            background: whether to work slowly, so that it does not disturb other processes.
        """
        self._home = (home or Path.home()).resolve()
        self._connect = connect
        self._background = background

    def take(self, message: str = "") -> TakenSnapshot:
        """Take a snapshot of the home, and return it.

        Args:
            message: what to remember it by, in at most 200 characters.

        Raises:
            UsageError: the message, or the file ``snapshots.toml``, is not valid.
            SnapshotError: the snapshot could not be taken. Earlier snapshots stay as they are.
        """
        tags = tags_of(message, moment := time.time())
        choice = read_choice(self._home)
        with self._backup(self._restic(), choice, *(f"--tag={tag}" for tag in tags)) as output:
            done = summary(output.stdout)
        return TakenSnapshot(
            id=done["snapshot_id"],
            time=moment,
            message=message,
            files=done["total_files_processed"],
            size=done["total_bytes_processed"],
            added=done["data_added"],
            unread=unread(output.problems, self._home) if output.code == UNREAD else (),
            left_out=choice.left_out(),
        )

    def has_changes(self) -> bool:
        """Return whether a snapshot would have something that is in none of the earlier ones.

        All changed files are read for this. Raises the same errors as `take`.
        """
        with self._backup(self._restic(), read_choice(self._home), "--dry-run") as output:
            done = summary(output.stdout)
        # Names, permissions and times are data, too: those of a folder and of all below it have one digest.
        return bool(done["data_added"])

    @overload
    def list(self, path: None = None) -> builtins.list[Snapshot]: ...

    @overload
    def list(self, path: str | os.PathLike[str]) -> builtins.list[Version]: ...

    def list(self, path: str | os.PathLike[str] | None = None) -> builtins.list[Snapshot] | builtins.list[Version]:
        """Return all snapshots, or those that have a file or folder, oldest first.

        Raises UsageError if the path is not in the home, and `SnapshotError` if the snapshots cannot be read.
        """
        return all_snapshots(self._restic()) if path is None else self._versions(self._relative(path))

    def diff(self, older: str | None = None, newer: str | None = None) -> builtins.list[Change]:
        """Return the differences between two snapshots.

        Args:
            older: a time or an id, as for `restore`. The default is the second newest snapshot.
            newer: a time or an id. The default is the newest snapshot.

        Raises UsageError if there are no such snapshots, and `SnapshotError` if they cannot be read.
        """
        restic = self._restic()
        every = all_snapshots(restic)
        if older is None and len(every) < 2:
            count = "one snapshot" if every else "no snapshot"
            raise UsageError(f"there is {count}, and two are needed; `%snapshot take` takes one")
        first = every[-2] if older is None else snapshot_at(every, older)
        second = snapshot_at(every, LATEST if newer is None else newer)
        found = restic.records("diff", "--no-lock", first.id, second.id)
        changes = [one for one in found if one["message_type"] == "change"]
        return [Change(kind=one["modifier"], path=one["path"].removeprefix("/")) for one in changes]

    def restore(
        self,
        path: str | os.PathLike[str],
        at: str = LATEST,
        to: str | os.PathLike[str] | None = None,
        *,
        keep_both: bool = False,
    ) -> Path:
        """Restore a file or a folder, and return where it is now. Nothing is overwritten.

        Args:
            path: the file or folder in the home.
            at: a time, such as ``2026-11-30T14:05`` or ``14:05``, which means the last snapshot until then, the id of a
                snapshot, or ``latest``.
            to: the folder in which to put it. The default is the one where it was.
            keep_both: whether to restore it under a name with the time of the snapshot if its path exists.

        Raises:
            UsageError: there is no such snapshot, it does not have the path, or the path exists.
            SnapshotError: it could not be restored, for example because there is no room. Nothing is left of it.
        """
        return self._restore(self._relative(path), at, to, keep_both=keep_both)

    def _versions(self, relative: PurePath) -> builtins.list[Version]:
        """Return the snapshots that have a path of the home, oldest first."""
        if not relative.name:
            raise UsageError("all snapshots have your home; name a file or folder in it, or leave out the path")
        restic = self._restic()
        return versions(restic, all_snapshots(restic), escaped(inside(relative)))

    def _restore(self, relative: PurePath, at: str, to: str | os.PathLike[str] | None, *, keep_both: bool) -> Path:
        """Restore a path of the home, and return where it is now."""
        restic = self._restic()
        snapshot = snapshot_at(all_snapshots(restic), at)
        folder = None if to is None else _expanded(to)
        return restore(restic, snapshot, self._home, relative, folder, keep_both=keep_both)

    def _restic(self) -> Restic:
        return Restic(self._connect, background=self._background)

    def _backup(self, restic: Restic, choice: Choice, *options: str) -> AbstractContextManager[Output]:
        """Run ``restic backup`` on the home, and yield its output."""
        exclude = [f"--exclude={pattern}" for pattern in choice.patterns(self._home)]
        words = ["backup", "--one-file-system", "--host", HOST, *options, *exclude, "."]
        return restic.running(*words, cwd=self._home, accepted=(0, UNREAD))

    def _relative(self, path: str | os.PathLike[str]) -> PurePath:
        """Return a path within the home. Raises UsageError if it is not there."""
        place = _expanded(path)
        # A link itself is in the snapshot, and not what it points to.
        place = place.parent.resolve() / place.name
        if not place.is_relative_to(self._home):
            if place.resolve() == self._home:
                return PurePath()
            raise UsageError(f"{shown(path)} is not in your home {self._home}; snapshots have only what is there")
        return place.relative_to(self._home)


def _expanded(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path without ``..``. Raises UsageError if it cannot be a path."""
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise UsageError(f"{shown(path)} is not a path; name a file or folder in your home")
    try:
        return Path(os.path.normpath(Path(os.path.expanduser(path)).absolute()))  # noqa: PTH111 - it keeps unknown users
    except FileNotFoundError as exc:
        # A user may have deleted the folder of the notebook, and want it back.
        raise UsageError(f"the working directory no longer exists; write {shown(path)} as a path with `~/`") from exc
