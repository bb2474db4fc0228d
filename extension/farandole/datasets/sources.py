"""Finds the files of a table, on a local disk or on an object store."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath
from typing import Any

from pyarrow import fs

from farandole.datasets.places import cause, is_url, opened
from farandole.exceptions import UsageError

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
"""The format of a file by the end of its name."""
COPIES = 1
"""Changes whenever the cache has to copy all tables again."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files of a table.

    Attributes:
        name: the absolute path or the URL.
        filesystem: where the files are.
        folder: the folder of the table, in which names of image files are looked up.
        files: the files in their natural order, so that part 2 comes before part 10.
        format: ``parquet`` or ``arrow``.
    """

    name: str
    filesystem: Any
    folder: str
    files: tuple[Any, ...]
    format: str

    @property
    def local(self) -> bool:
        """Whether the files are on a disk of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def key(self, columns: Sequence[str]) -> str:
        """Return a name for these columns of the table. It stays the same when the files change."""
        return _digest([COPIES, self.name, columns])

    def state(self) -> str:
        """Return a text that changes when the files change."""
        return _digest([[file.path, file.size, file.mtime_ns] for file in self.files])


def find(name: str) -> Source:
    """Return the files of the table with an absolute path or a URL.

    Raises:
        UsageError: there are no such files, they have different formats, or they cannot be read.
    """
    try:
        filesystem, path = opened(name)
        [info] = filesystem.get_file_info([path])
        if info.type == fs.FileType.NotFound:
            raise UsageError(_missing(name))
        if info.type == fs.FileType.Directory:
            return _folder(name, filesystem, path)
    except (OSError, UnicodeError) as exc:
        raise UsageError(
            f"fd.dataset: {name!r} cannot be read: {cause(exc)}. Check the name and your credentials."
        ) from exc
    kind = FORMATS.get(_suffix(path))
    if kind is None:
        raise UsageError(
            f"fd.dataset: {name} is neither a Parquet file (.parquet) nor an Arrow file (.arrow, .feather); read it "
            "with Dask, e.g. dask.dataframe.read_csv, and give the data frame."
        )
    parent = str(PurePosixPath(path).parent)
    return Source(name=name, filesystem=filesystem, folder=parent, files=(info,), format=kind)


def _missing(name: str) -> str:
    if is_url(name):
        return f"fd.dataset: there is no file or folder {name}. Check the name."
    return (
        f"fd.dataset: there is no file or folder {name} on this machine. Check the name, or copy the data to the ranks "
        "with `%cluster put`."
    )


def _folder(name: str, filesystem: Any, path: str) -> Source:
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    files = [file for file in found if file.is_file and _is_data(file.path, path)]
    if isinstance(filesystem, fs.LocalFileSystem):
        loops = {parent for parent in {PurePath(file.path).parent for file in files} if _is_loop(parent, path)}
        files = [file for file in files if PurePath(file.path).parent not in loops]
    kinds = {FORMATS[_suffix(file.path)] for file in files}
    if not files:
        raise UsageError(
            f"fd.dataset: the folder {name} has no Parquet files (.parquet) and no Arrow files (.arrow, .feather)."
        )
    if len(kinds) > 1:
        raise UsageError(
            f"fd.dataset: the folder {name} has both Parquet and Arrow files; give a folder with one kind of files, or "
            "a single file."
        )
    ordered = tuple(sorted(files, key=lambda file: _natural(file.path)))
    return Source(name=name, filesystem=filesystem, folder=path, files=ordered, format=kinds.pop())


def _is_data(path: str, folder: str) -> bool:
    """Return whether a file below a folder has rows. Names with ``_`` or ``.`` are for other files, as in Spark."""
    below = PurePosixPath(path).relative_to(folder).parts
    return _suffix(path) in FORMATS and not any(part.startswith(("_", ".")) for part in below)


def _is_loop(place: PurePath, folder: str) -> bool:
    """Return whether there is a link to a folder that contains it on the way from a folder to a place below it."""
    way = [place, *(parent for parent in place.parents if parent.is_relative_to(folder))]
    return len({os.path.realpath(each) for each in way}) < len(way)


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(text), "") if text.isdecimal() else (-1, text) for text in re.split(r"(\d+)", path)]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]
