"""Where the files of a source are: on a disk that all ranks see, or in an object store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from farandole.datasets.places import cause, listed, opened
from farandole.exceptions import RankError

READERS = 16
"""The number of files that are read from an object store at the same time, because readers mostly wait for answers."""


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
    def filesystem(self) -> Any:
        """The file system."""
        return self._place[0]

    @property
    def path(self) -> str:
        """The path in the file system."""
        return self._place[1]

    @property
    def local(self) -> bool:
        """Whether it is on a disk."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def kind(self) -> fs.FileType:
        """Whether it is a file, a folder, or not there. Raises OSError if the store does not answer."""
        [info] = self.filesystem.get_file_info([self.path])
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

    def listed(self) -> tuple[fs.FileType, list[fs.FileInfo]]:
        """Return whether it is a file, a folder, or not there, and all files, sorted by their paths.

        Raises UsageError or OSError if they cannot be listed.
        """
        return listed(*self._place)

    def below(self, path: str) -> str:
        """Return the path of a file below the folder, or an empty one for the file itself."""
        return path.removeprefix(self.path).lstrip("/")

    def open(self, path: str) -> pa.NativeFile:
        """Open a file of the folder, or the file itself if ``path`` is empty. Raises OSError."""
        return self.filesystem.open_input_file(self._joined(path))

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
