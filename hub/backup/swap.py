"""Puts restored folders in the place of those that a hub has, so that a kill at any moment leaves one of both, whole.

A restore writes into the subfolder `STAGED` of each folder first. Only then are entries renamed, and a marker says how
far this has come. If it is interrupted, the next restore or start of the hub completes it.

This module imports only the standard library, because each start of a hub uses it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Keep = Callable[[Path], bool]

LOCK = "backup.lock"
"""The file in the state folder that a process locks which backs up or restores the hub."""
STAGED = ".restore"
COMPLETE, EMPTIED, DONE = "complete", "emptied", "done"
"""The markers: everything is restored; what the folder had is moved out; what was moved out can be removed."""
RUNNING = (".log", ".part", ".pid", ".port", "lock")
"""How the names of files in the state folder end that belong to running processes."""
NOTICES = "notices"
"""The only folder in the state folder that is part of the state, see `copy_files`."""


def stage(folder: Path) -> Path:
    """Return the folder into which the new content of a folder is restored. It is empty."""
    unstage(folder)
    new = folder / STAGED / "new"
    new.mkdir(mode=0o700, parents=True)
    return new


def unstage(folder: Path) -> None:
    """Remove what an earlier restore has left, without using it."""
    shutil.rmtree(folder / STAGED, ignore_errors=True)


def mark_complete(folder: Path) -> None:
    """Note that everything has been restored into the staged folder."""
    os.sync()
    (folder / STAGED / COMPLETE).touch(mode=0o600)


def commit(state: Path) -> None:
    """Put the staged state, with repositories and homes in the state folder, in the place of the present state."""
    mark_complete(state)
    finish(state)


def finish_at_start(state: Path) -> None:
    """Complete a restore that was interrupted after its commit, before a hub reads the state folder."""
    if _has_marker(state):
        with (state / LOCK).open("w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            finish(state)


def finish(state: Path) -> None:
    """Complete a restore that was interrupted after its commit; without one, do nothing. The caller has the lock."""
    if not _has_marker(state):
        return
    install(state / "homes", lambda _path: False)
    install(state / "snapshots", _is_hidden)
    install(state, _is_kept)


def install(folder: Path, keep: Keep = lambda _path: False) -> None:
    """Replace the entries of a folder, except those to ``keep``, by the staged ones if these are complete."""
    staged = folder / STAGED
    old, new = staged / "old", staged / "new"
    if (staged / COMPLETE).exists():
        old.mkdir(exist_ok=True)
        for path in list(folder.iterdir()):
            if path.name != STAGED and not keep(path):
                path.rename(old / path.name)
        (staged / COMPLETE).rename(staged / EMPTIED)
    if (staged / EMPTIED).exists():
        for path in list(new.iterdir()):
            path.rename(folder / path.name)
        (staged / EMPTIED).rename(staged / DONE)
    if (staged / DONE).exists():
        # The marker is removed last, or what is left could not be told from a restore that is not complete.
        for path in (old, new):
            shutil.rmtree(path, ignore_errors=True)
        unstage(folder)


def _has_marker(folder: Path) -> bool:
    return any((folder / STAGED / each).exists() for each in (COMPLETE, EMPTIED, DONE))


def _is_hidden(path: Path) -> bool:
    """Return whether an entry of the folder of snapshots is no repository of a user."""
    return path.name.startswith(".")


def _is_kept(path: Path) -> bool:
    """Return whether an entry of the state folder is no part of a backup's state."""
    return path.name != NOTICES if path.is_dir() else path.name.endswith(RUNNING)
