"""Finds the files of a table, on a local disk or on an object store."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pyarrow import fs

from farandole.exceptions import UsageError

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow"}
"""The format of a file by the end of its name."""
PASSWORD = re.compile(r"[^/]+://[^/@]*:[^/@]*@")
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


def cause(error: Exception) -> str:
    """Return the message of an error in one line and without a full stop, as a part of another message."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()).rstrip(" .")


def absolute(name: str) -> str:
    """Return a URL as it is, and a path as an absolute one. Raises UsageError if a URL has a password."""
    if PASSWORD.match(name):
        raise UsageError(
            "fd.dataset: the URL has a password, which errors and pickles would show; leave it out, and set the "
            "variables of the store on all ranks, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return name if "://" in name else str(Path(name).expanduser().absolute())


def find(name: str) -> Source:
    """Return the files of the table with an absolute path or a URL.

    Raises:
        UsageError: there are no such files, they have different formats, or they cannot be read.
    """
    try:
        filesystem, path = _place(name)
        [info] = filesystem.get_file_info([path])
        if info.type == fs.FileType.NotFound:
            raise UsageError(_missing(name))
        if info.type == fs.FileType.Directory:
            return _folder(name, filesystem, path)
    except OSError as exc:
        raise UsageError(
            f"fd.dataset: {name} cannot be read: {cause(exc)}. Check the name and your credentials."
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
    if "://" in name:
        return f"fd.dataset: there is no file or folder {name}. Check the name."
    return (
        f"fd.dataset: there is no file or folder {name} on this machine. Check the name, or copy the data to the ranks "
        "with `%cluster put`."
    )


def _folder(name: str, filesystem: Any, path: str) -> Source:
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    files = [file for file in found if file.is_file and _is_data(file.path, path)]
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


def _place(name: str) -> tuple[Any, str]:
    """Return a file system and the path in it. Raises UsageError if no library reads such URLs."""
    if "://" not in name:
        return fs.LocalFileSystem(), name
    try:
        return fs.FileSystem.from_uri(name)  # type: ignore[no-any-return]
    except ValueError as exc:
        if "Unrecognized filesystem type" not in str(exc):
            raise UsageError(
                f"fd.dataset: {name} is not a valid URL: {cause(exc)}. An example is s3://bucket/table."
            ) from exc
    return _fsspec_place(name)


def _fsspec_place(name: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs

        filesystem, path = url_to_fs(name)
    except (ImportError, ValueError) as exc:
        raise UsageError(
            f"fd.dataset: {name} cannot be opened: {cause(exc)}. Install fsspec's package for such URLs on all ranks."
        ) from exc
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def _is_data(path: str, folder: str) -> bool:
    """Return whether a file below a folder has rows. Names with ``_`` or ``.`` are for other files, as in Spark."""
    below = PurePosixPath(path).relative_to(folder).parts
    return _suffix(path) in FORMATS and not any(part.startswith(("_", ".")) for part in below)


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(text), "") if text.isdecimal() else (-1, text) for text in re.split(r"(\d+)", path)]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]
