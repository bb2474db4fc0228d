"""Restores a file or folder of a snapshot. Nothing is overwritten."""

from __future__ import annotations

import os
import select
from pathlib import Path, PurePath
from typing import IO

from farandole.exceptions import SnapshotError, UsageError
from farandole.reading import printable, reason
from farandole.snapshots.choice import escaped
from farandole.snapshots.model import Snapshot
from farandole.snapshots.place import beside, check_room, partial_folder, put, room
from farandole.snapshots.records import size_of
from farandole.snapshots.restic import Restic
from farandole.times import time_text

FILES = PurePath("files")
QUICK_SECONDS = 1.5
"""How long restic restores before the size of the path is compared with the free space.

Asking for the size takes longer than restoring a small file."""


def restore(
    restic: Restic, snapshot: Snapshot, home: Path, relative: PurePath, to: Path | None, *, keep_both: bool
) -> Path:
    """Restore a path of the home where it was, or into the folder ``to``. If it exists, it may be put beside it.

    Raises:
        UsageError: the snapshot does not have the path, or the target exists.
        SnapshotError: it could not be restored. Nothing is left of it.
    """
    if to is not None and os.path.lexists(to) and not to.is_dir():
        raise _exists(to)
    place = home / relative
    target = _free(place if to is None else to / place.name, snapshot, keep_both=keep_both)
    try:
        with partial_folder(target) as partial:
            words = ["--target", str(partial / FILES), "--include", escaped(inside(relative))]
            free = room(target)
            # Without --quiet, restic would print a line at the beginning.
            with restic.running("restore", "--quiet", "--no-lock", *words, "--", snapshot.id) as output:
                if not _has_ended(output.stdout, QUICK_SECONDS):
                    check_room(target, size_of(restic, snapshot, inside(relative)), free)
                output.stdout.read()
            if not os.path.lexists(partial / FILES / relative):
                raise _missing(snapshot, relative)
            if to is not None:
                to.mkdir(parents=True, exist_ok=True)
            put(partial, FILES / relative, target)
    except FileExistsError as exc:
        raise _exists(target) from exc
    except OSError as exc:
        raise SnapshotError(f"{shown(relative)} cannot be restored to {shown(target)}: {reason(exc)}.") from exc
    return target


def inside(relative: PurePath) -> str:
    """Return a path of the home as it is in snapshots."""
    return f"/{relative}" if relative.name else "/"


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as text for a message. Names may be in another encoding."""
    return repr(printable(os.fsencode(path).decode(errors="replace")))


def _free(target: Path, snapshot: Snapshot, *, keep_both: bool) -> Path:
    """Return the target, or a name beside it if it exists and both are to be kept."""
    if not os.path.lexists(target):
        return target
    if not keep_both:
        raise _exists(target)
    other = beside(target, snapshot.time)
    if os.path.lexists(other):
        raise UsageError(
            f"{shown(other)} exists, too, so this version has been restored before. Restore it with `--to DIR` into "
            "another folder."
        )
    return other


def _exists(target: Path) -> UsageError:
    return UsageError(
        f"{shown(target)} exists, and would be overwritten. Restore with `--keep-both` under a name with the time of "
        "the snapshot, or with `--to DIR` into another folder."
    )


def _has_ended(output: IO[bytes], seconds: float) -> bool:
    """Return whether a program that prints nothing ends within this time."""
    readable, _, _ = select.select([output], [], [], seconds)
    return bool(readable)


def _missing(snapshot: Snapshot, relative: PurePath) -> UsageError:
    return UsageError(
        f"{shown(relative)} is not in the snapshot {snapshot.short_id} of {time_text(snapshot.time)}; "
        "`%snapshot list PATH` lists the snapshots that have a path"
    )
