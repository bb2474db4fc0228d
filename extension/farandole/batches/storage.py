"""Where the files of a source are: on a disk that all ranks see, or in an object store."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from farandole.datasets.places import cause, opened
from farandole.exceptions import RankError

READERS = 16
"""The number of files that a rank reads from an object store at the same time, because it mostly waits for answers."""
HIDDEN = (".", "_")
"""Files and folders whose names begin with these are left out, as in Spark and Dask."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file in a folder.

    Attributes:
        path: the path below the folder.
        size: the size in bytes.
        changed: when it was changed, in nanoseconds, or 0 if the store does not tell.
    """

    path: str
    size: int
    changed: int


class Storage:
    """A file or a folder. A process that loads a pickle of it opens it with its own credentials.

    Attributes:
        name: the absolute path or the URL.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[type[Storage], tuple[str]]:
        return Storage, (self.name,)

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return opened(self.name)

    @property
    def path(self) -> str:
        """The path in the file system."""
        return self._place[1]

    @property
    def local(self) -> bool:
        """Whether it is on a disk."""
        return isinstance(self._place[0], fs.LocalFileSystem)

    @property
    def kind(self) -> fs.FileType:
        """Whether it is a file, a folder, or not there. Raises OSError if the store does not answer."""
        [info] = self._place[0].get_file_info([self.path])
        return info.type

    def check(self) -> None:
        """Raise RankError if this rank does not find it."""
        try:
            found = self.kind
        except OSError as exc:
            raise RankError(
                f"a rank cannot read the source {self.name}: {cause(exc)}. Check the credentials on the ranks"
            ) from exc
        if found == fs.FileType.NotFound:
            raise RankError(f"a rank does not see the source {self.name}. Choose a folder that all workers share")

    def entries(self) -> list[Entry]:
        """Return the files of the folder and of the folders in it, sorted by their paths. Raises OSError."""
        found = _walked(Path(self.path)) if self.local else self._selected()
        return sorted(found, key=lambda entry: entry.path)

    def entry(self) -> Entry:
        """Return the file. Raises OSError."""
        [info] = self._place[0].get_file_info([self.path])
        return Entry(path="", size=info.size, changed=info.mtime_ns or 0)

    def _selected(self) -> Iterator[Entry]:
        for info in self._place[0].get_file_info(fs.FileSelector(self.path, recursive=True)):
            path = info.path.removeprefix(self.path).lstrip("/")
            if info.is_file and not any(part.startswith(HIDDEN) for part in path.split("/")):
                yield Entry(path=path, size=info.size, changed=info.mtime_ns or 0)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file of the folder, or the file itself if ``path`` is empty. Raises OSError."""
        return self._place[0].open_input_file(self._joined(path))

    def mapped(self, path: str) -> pa.NativeFile:
        """Open a file as `open` does. One on a disk is not read before its content is used."""
        return pa.memory_map(self._joined(path)) if self.local else self.open(path)

    def contents(self, paths: Sequence[str]) -> list[bytes]:
        """Return the contents of files of the folder. Raises OSError."""
        if self.local:
            return [Path(self.path, path).read_bytes() for path in paths]
        with ThreadPoolExecutor(READERS) as readers:
            return list(readers.map(self._content, paths))

    def _content(self, path: str) -> bytes:
        with self.open(path) as file:
            data: bytes = file.readall()
            return data

    def _joined(self, path: str) -> str:
        return f"{self.path.rstrip('/')}/{path}" if path else self.path


def _walked(folder: Path) -> Iterator[Entry]:
    """Yield the files below a folder on a disk. Links are followed, but not to a folder that contains them."""
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN) and not _is_loop(parent, name)]
        below = "" if parent == str(folder) else f"{os.path.relpath(parent, folder)}/"
        for name in names:
            if not name.startswith(HIDDEN):
                about = Path(parent, name).stat()
                # Reading a pipe would not end.
                if stat.S_ISREG(about.st_mode):
                    yield Entry(path=f"{below}{name}", size=about.st_size, changed=about.st_mtime_ns)


def _raise(error: OSError) -> None:
    raise error


def _is_loop(parent: str, name: str) -> bool:
    path = Path(parent, name)
    return path.is_symlink() and Path(parent).resolve().is_relative_to(path.resolve())
