"""Places of files: paths on a disk of this machine, and URLs of object stores."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyarrow import fs

from farandole.exceptions import UsageError
from farandole.reading import reason

PASSWORD = re.compile(r"[^/]+://[^/@]*:[^/@]*@")
WITHIN_URLS = ":/?#[]@!$&'()*+,;=%~"
"""The characters of a URL that are neither letters nor digits."""
HIDDEN = (".", "_")
"""Files and folders whose names begin with these are left out, as in Spark and Dask."""


def is_url(name: str) -> bool:
    """Return whether a name is a URL, and not a path."""
    return "://" in name


def absolute(name: str) -> str:
    """Return a URL as it is, and a path as an absolute one. Raises UsageError if a URL has a password."""
    if PASSWORD.match(name):
        raise UsageError(
            "the URL of the data has a password, which errors and pickles would show; leave it out, and set the "
            "variables of the store on all ranks, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return name if is_url(name) else str(Path(name).expanduser().absolute())


def opened(name: str) -> tuple[Any, str]:
    """Return the file system of an absolute path or a URL, and the path in it.

    Credentials are those of this process, as is the address of a store in ``AWS_ENDPOINT_URL``.

    Raises:
        UsageError: the URL is not valid, or no library reads such URLs.
        OSError: the store does not answer.
    """
    if not is_url(name):
        return fs.LocalFileSystem(), name
    try:
        return fs.FileSystem.from_uri(quote(name, safe=WITHIN_URLS))  # type: ignore[no-any-return]
    except ValueError as exc:
        if "Unrecognized filesystem type" not in str(exc):
            raise UsageError(f"{name} is not a valid URL: {cause(exc)}. An example is s3://bucket/table.") from exc
    return _by_fsspec(name)


def _by_fsspec(name: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs

        filesystem, path = url_to_fs(name)
    except (ImportError, ValueError) as exc:
        raise UsageError(
            f"{name} cannot be opened: {cause(exc)}. Install fsspec's package for such URLs on all ranks."
        ) from exc
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def listed(filesystem: Any, path: str) -> tuple[fs.FileType, list[fs.FileInfo]]:
    """Return the type of a path, and the file, or the files of the folder and of the folders in it, sorted by path.

    Raises:
        UsageError: the name of a file is not UTF-8.
        OSError: the store does not answer, a folder cannot be read, or a link leads to nothing.
    """
    [info] = filesystem.get_file_info([path])
    if info.type == fs.FileType.Directory:
        found = _on_disk(path) if isinstance(filesystem, fs.LocalFileSystem) else _in_store(filesystem, path)
        return info.type, sorted(found, key=lambda file: file.path)
    return info.type, [] if info.type == fs.FileType.NotFound else [info]


def _in_store(filesystem: Any, folder: str) -> Iterator[fs.FileInfo]:
    for info in filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
        below = info.path.removeprefix(folder).lstrip("/")
        if info.is_file and not any(part.startswith(HIDDEN) for part in below.split("/")):
            yield info


def _on_disk(folder: str) -> Iterator[fs.FileInfo]:
    """Yield the files below a folder. Links are followed, but not to folders that contain one on the way."""
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN) and not _is_loop(parent, name, folder)]
        for name in names:
            if not name.startswith(HIDDEN):
                # A Path would have another beginning than a folder with `//`.
                path = f"{parent}/{name}"
                about = Path(path).stat()
                # Reading a pipe would not end.
                if stat.S_ISREG(about.st_mode):
                    yield _file_info(path, about)


def _raise(error: OSError) -> None:
    raise error


def _is_loop(parent: str, name: str, folder: str) -> bool:
    path = Path(parent, name)
    if not path.is_symlink():
        return False
    target = path.resolve()
    return any(each.resolve().is_relative_to(target) for each in path.parents if each.is_relative_to(folder))


def _file_info(path: str, about: os.stat_result) -> fs.FileInfo:
    try:
        return fs.FileInfo(path, fs.FileType.File, size=about.st_size, mtime_ns=about.st_mtime_ns)
    except UnicodeEncodeError as exc:
        folder, _, name = path.rpartition("/")
        raise UsageError(f"the name of the file {name!r} in {folder!r} is not UTF-8; rename the file") from exc


def cause_with_file(error: Exception) -> str:
    """Return the message of an error as `cause` does, and the name of the file if the error has one."""
    return reason(error) if isinstance(error, OSError) and error.filename is not None else cause(error)


def cause(error: Exception) -> str:
    """Return the message of an error in one line and without a full stop, as a part of another message."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()).rstrip(" .")
