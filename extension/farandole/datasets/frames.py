"""Writes a Dask data frame once, as a folder of Arrow files."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from farandole.datasets.cache import write_arrow
from farandole.datasets.contents import joined_batches
from farandole.datasets.digests import frame_digest
from farandole.datasets.disk import NEW, left_beside, locked, new_file, temporary_beside
from farandole.datasets.places import cause
from farandole.datasets.schemas import check_names
from farandole.datasets.table_dataset import check_types
from farandole.exceptions import UsageError
from farandole.reading import read_json

MANIFEST = "_frame.json"
"""The file in a folder that names the frame and its parts."""
KEY_DIGITS = 32
REMOVE_SECONDS = 5.0
"""How long the removal of a folder is repeated, because tasks that have begun may still write files into it."""
REMOVE_PAUSE = 0.05


def default_folder() -> Path:
    """Return the folder that ``$FARANDOLE_DATASETS`` names. The default is ``~/farandole/datasets``."""
    return Path(os.environ.get("FARANDOLE_DATASETS") or Path.home() / "farandole" / "datasets")


def is_frame(source: Any) -> bool:
    """Return whether something is a Dask data frame, without importing Dask."""
    kind = type(source)
    return kind.__module__.startswith("dask") and any(base.__name__ == "DataFrame" for base in kind.__mro__)


def stored(frame: Any, columns: Sequence[str], folder: Path | None, *, strict: bool, images: Sequence[str]) -> Path:
    """Return the folder in which a Dask data frame is written. If it already has this frame, nothing is computed.

    The folder gets its name when all parts are written. Processes that store the same frame wait for each other.

    Raises:
        UsageError: the frame lacks a column or has no rows, or the folder has other content or cannot be written.
    """
    if other := [name for name in frame.columns if not isinstance(name, str)]:
        raise UsageError(
            f"fd.dataset: the data frame has the column {other[0]!r}, whose name is no text; rename it, for example "
            "with frame.rename(columns=str)."
        )
    check_names(list(frame.columns), columns, "the data frame")
    frame = frame[list(columns)] if columns else frame
    check_types(_known_schema(frame), images=images, strict=strict, name="the data frame")
    key = _key(frame)
    target = (folder or default_folder() / key).expanduser().absolute()
    with ExitStack() as stack:
        with _writable(target):
            alone = stack.enter_context(locked(target.with_name(f".{target.name}.lock")))
            written = _has(target, key)
        if not written:
            _write(frame, target, key, alone=alone)
    return target


@contextmanager
def _writable(target: Path) -> Iterator[None]:
    """Raise UsageError if the folder cannot be written. Errors of the computation stay as they are."""
    try:
        yield
    except OSError as exc:
        raise UsageError(
            f"fd.dataset: the data frame cannot be written to {target}: {cause(exc)}. Make space there, or give a "
            "`folder` on another disk that all ranks and this process see."
        ) from exc


def _key(frame: Any) -> str:
    return frame_digest(frame)[:KEY_DIGITS]


def _known_schema(frame: Any) -> pa.Schema:
    """Return the columns whose types Dask knows before it computes anything. Columns of objects may have any type."""
    schema = pa.Schema.from_pandas(frame._meta, preserve_index=False)
    anything = pa.list_(pa.float64())
    return pa.schema([field.with_type(anything) if pa.types.is_null(field.type) else field for field in schema])


def _has(folder: Path, key: str) -> bool:
    """Return whether a folder has all parts of a frame. Raises UsageError if it has anything else."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    found: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        found = read_json(folder, MANIFEST)
    if found.get("frame") != key:
        raise UsageError(
            f"fd.dataset: {folder} already exists and does not have the data of this frame; delete it, or give another "
            "`folder`."
        )
    if missing := [name for name in found["parts"] if not (folder / name).exists()]:
        raise UsageError(f"fd.dataset: {missing[0]} is missing in {folder}; delete the folder to write it again.")
    return True


def _write(frame: Any, target: Path, key: str, *, alone: bool) -> None:
    """Let Dask write the partitions into a new folder, which gets its name at the end.

    If no other process writes the same folder, remove what killed ones have left.
    """
    new = temporary_beside(target)
    with _writable(target):
        for left in left_beside(target) if alone else ():
            shutil.rmtree(left, ignore_errors=True)
        new.mkdir()
    try:
        parts = _computed(frame, new)
        _check(parts, new)
        with _writable(target):
            with new_file(new / MANIFEST) as file:
                file.write(json.dumps({"frame": key, "parts": parts}).encode())
            new.replace(target)
    except BaseException:
        _remove(new)
        raise


def _remove(folder: Path) -> None:
    """Remove a folder into which tasks that began before another one failed may still be writing."""
    give_up = time.monotonic() + REMOVE_SECONDS
    while folder.exists() and time.monotonic() < give_up:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(REMOVE_PAUSE)


def _computed(frame: Any, folder: Path) -> dict[str, int]:
    """Return the names of the parts with their numbers of rows."""
    from dask.base import compute
    from dask.delayed import delayed

    write = delayed(write_part)
    tasks = [write(partition, number, str(folder)) for number, partition in enumerate(frame.to_delayed())]
    return {name: rows for name, rows in compute(*tasks) if rows}


def _check(parts: dict[str, int], folder: Path) -> None:
    """Raise UsageError if there are no rows, or if this process does not see a part."""
    if not parts:
        raise UsageError("fd.dataset: the data frame has no rows. Check how it was filtered.")
    if missing := [name for name in parts if not (folder / name).exists()]:
        raise UsageError(
            f"fd.dataset: a rank has written {missing[0]} to {folder.parent}, where this process does not see it; give "
            "a `folder` that all ranks and this process share."
        )
    for left in folder.glob(f"{NEW}*"):  # a rank was lost while it wrote a part, which another one has written again
        left.unlink(missing_ok=True)


def write_part(partition: Any, number: int, folder: str) -> tuple[str, int]:
    """Write a partition as an Arrow file, and return its name and its number of rows. Dask runs this on a rank.

    A partition without rows has no file, because the types of its values may be unknown.

    Raises UsageError if the file cannot be written.
    """
    name = f"part-{number:05d}.arrow"
    if len(partition) == 0:
        return name, 0
    try:
        table = pa.Table.from_pandas(partition, preserve_index=False).replace_schema_metadata(None)
    except pa.ArrowException as exc:
        raise UsageError(
            f"fd.dataset: partition {number} of the data frame cannot be written: {cause(exc)}. Give each column "
            "values of one type, e.g. with astype."
        ) from exc
    try:
        with new_file(Path(folder, name)) as file:
            return name, write_arrow(file, table.schema, joined_batches(table))
    except OSError as exc:
        raise UsageError(
            f"fd.dataset: a rank cannot write partition {number} of the data frame to {folder}: {cause(exc)}. "
            "Make space there, or give a `folder` on another disk that all ranks and this process see."
        ) from exc
