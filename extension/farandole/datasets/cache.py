"""Copies of tables as uncompressed Arrow files, in a folder that several machines may share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc

from farandole.datasets.contents import copied_batches
from farandole.datasets.disk import NEW, locked, new_file
from farandole.datasets.places import cause
from farandole.datasets.sources import Source
from farandole.exceptions import UsageError

KEPT_SECONDS = 24 * 3600
"""How long the copy of an earlier state stays after it was opened for the last time.

On a network file system, a process on another machine could no longer read a copy that is removed.
"""
MARK_SECONDS = 3600
"""How often a copy is marked as used. Network file systems read the content of a file again after each mark."""


def default_folder() -> Path:
    """Return the folder of the copies. The default is ``~/.cache/farandole/datasets``.

    The workers of a hub share the home, and so the copies, unless ``XDG_CACHE_HOME`` names a folder on a local disk.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farandole" / "datasets"


def copy_of(source: Source, columns: Sequence[str], check: Callable[[pa.Schema], None]) -> Path:
    """Return an uncompressed Arrow file with these columns of a table, which is made if there is none yet.

    - If several processes need the file, one makes it, and the others wait, also on other machines with the same
      folder.
    - A copy of an earlier state of the same table is removed if no process has opened it for a day.
    - ``check`` gets the schema before anything is copied, and may raise an error.

    Raises:
        UsageError: the table cannot be read or has no rows, or the disk is full.
    """
    folder, key = default_folder(), source.key(columns)
    path = folder / f"{key}-{source.state()}.arrow"
    if path.exists():
        _mark_as_used(path)
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(folder / f"{key}.lock") as alone:
            if not path.exists():
                _copy(source, columns, path, check)
                if alone:
                    _remove_others(path, key)
    except (OSError, pa.ArrowException) as exc:
        raise UsageError(
            f"fd.dataset: {source.name} cannot be copied to {folder}: {cause(exc)}. Make space there, name a "
            "folder on another disk in XDG_CACHE_HOME, or give the `columns` that you need."
        ) from exc
    return path


def _copy(source: Source, columns: Sequence[str], path: Path, check: Callable[[pa.Schema], None]) -> None:
    schema, batches = copied_batches(source, columns)
    check(schema)
    with new_file(path) as file:
        if not write_arrow(file, schema, batches):
            raise UsageError(f"fd.dataset: {source.name} has no rows. Check the file, or how it was filtered.")


def write_arrow(file: object, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    """Write record batches as an uncompressed Arrow file, and return the number of rows."""
    rows = 0
    with ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _mark_as_used(path: Path) -> None:
    """Set the time of the last change of a copy to now, unless others have done so within `MARK_SECONDS`."""
    with suppress(OSError):
        if _age(path) > MARK_SECONDS:
            os.utime(path)


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _remove_others(path: Path, key: str) -> None:
    """Remove copies of earlier states that have not been opened for a day, and what killed processes have left."""
    for other in path.parent.glob(f"*{key}-*"):
        if other != path and (other.name.startswith(NEW) or _age(other) > KEPT_SECONDS):
            other.unlink(missing_ok=True)
