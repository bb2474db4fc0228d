"""Finds the files of a table, on a local disk or on an object store."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pyarrow import fs

from farandole.datasets.places import cause_with_file, is_url, listed, opened
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
        format: the format of all files: ``parquet`` or ``arrow``.
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
    """Return the table of `fd.dataset` with an absolute path or a URL.

    Raises:
        UsageError: there are no such files, they have different formats, or they cannot be read.
    """
    try:
        filesystem, path = opened(name)
        kind, files = listed(filesystem, path)
    except (OSError, UnicodeError) as exc:
        hint = "Check the name and your credentials." if is_url(name) else "Check the name, or remove the file."
        raise UsageError(f"fd.dataset: {name!r} cannot be read: {cause_with_file(exc)}. {hint}") from exc
    if kind == fs.FileType.NotFound:
        raise UsageError(_missing(name))
    table = table_of(name, filesystem, path, files)
    if table is None:
        raise UsageError(_no_table(name, kind))
    return table


def table_of(name: str, filesystem: Any, path: str, files: Sequence[Any]) -> Source | None:
    """Return the table of the Parquet or Arrow files among those at a path, or None if there are none.

    Raises UsageError if there are both Parquet and Arrow files.
    """
    tables = [file for file in files if format_of(file.path)]
    if not tables:
        return None
    if len({format_of(file.path) for file in tables}) > 1:
        raise UsageError(
            f"the folder {name} has both Parquet and Arrow files; give a folder with one kind of files, or a single "
            "file."
        )
    return Source(
        name=name,
        filesystem=filesystem,
        folder=str(PurePosixPath(path).parent) if tables[0].path == path else path,
        # The path breaks ties between names such as part.1 and part.01.
        files=tuple(sorted(tables, key=lambda file: (_natural(file.path), file.path))),
        format=FORMATS[_suffix(tables[0].path)],
    )


def format_of(path: str) -> str | None:
    """Return ``parquet`` or ``arrow``, or None for a file of another kind."""
    return FORMATS.get(_suffix(path))


def _missing(name: str) -> str:
    if is_url(name):
        return f"fd.dataset: there is no file or folder {name}. Check the name."
    return (
        f"fd.dataset: there is no file or folder {name} on this machine. Check the name, or copy the data to the ranks "
        "with `%cluster put`."
    )


def _no_table(name: str, kind: fs.FileType) -> str:
    if kind == fs.FileType.Directory:
        return f"fd.dataset: the folder {name} has no Parquet files (.parquet) and no Arrow files (.arrow, .feather)."
    return (
        f"fd.dataset: {name} is neither a Parquet file (.parquet) nor an Arrow file (.arrow, .feather); read it "
        "with Dask, e.g. dask.dataframe.read_csv, and give the data frame."
    )


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(text), "") if text.isdecimal() else (-1, text) for text in re.split(r"(\d+)", path)]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]
