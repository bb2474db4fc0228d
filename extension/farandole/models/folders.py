"""Changes the folders of models, in which other users may plant links and pipes at any time.

Functions take the descriptor of an open folder, so nobody can replace it with a link in the meantime. They follow no
link, and wait for no pipe. They raise OSError, whose ``strerror`` is the reason for the user.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from farandole.models.model import StoredFile
from farandole.models.names import VERSION
from farandole.reading import SAFE, open_regular

IN_USE = "in-use"
NEW = ".new-"
GONE = re.compile(r"\.gone-([0-9]{1,9})-[0-9a-f]+")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class NewFolder:
    """The folder of a version that is being written: its name, and the descriptors of itself and of its parent."""

    name: str
    own: int
    parent: int


@contextmanager
def opened(folder: str | Path, parent: int | None = None, *, may_be_link: bool = False) -> Iterator[int]:
    """Open a folder, relative to ``parent``. Links in the names of its parents are followed."""
    try:
        descriptor = os.open(folder, FOLDER if may_be_link else FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as exc:
        if exc.errno in {errno.ENOTDIR, errno.ELOOP}:
            raise OSError(exc.errno, f"{Path(folder).name!r} is a link or a file, not a folder") from exc
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Create a folder and its parents, so that they outlast a power failure. Links are followed."""
    if not folder.is_dir():
        make_folders(folder.parent)
        with opened(folder.parent, may_be_link=True) as parent:
            make_folder(folder.name, parent)


def make_folder(name: str, parent: int) -> None:
    """Create a folder, unless it exists, so that it outlasts a power failure."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        os.fsync(parent)


@contextmanager
def new_folder(parent: int) -> Iterator[NewFolder]:
    """Create a folder for a new version. Delete it in the end, unless it has been renamed."""
    name = f"{NEW}{secrets.token_hex(8)}"
    os.mkdir(name, dir_fd=parent)
    try:
        with opened(name, parent) as own, create("unlocked", own) as file:
            # The lock is shared, because a server may lock the version, too, as soon as it is visible.
            fcntl.flock(file, fcntl.LOCK_SH)
            # `clean` only deletes a folder that has a file with this name, so the file gets its name with the lock.
            os.rename("unlocked", IN_USE, src_dir_fd=own, dst_dir_fd=own)
            yield NewFolder(name=name, own=own, parent=parent)
    finally:
        with suppress(OSError):
            _delete(name, parent)


@contextmanager
def locked(folder: str | Path, kind: int, parent: int | None = None) -> Iterator[None]:
    """Lock a version in this context. Raises BlockingIOError if another process has locked it in the other way."""
    # NFS locks exclusively only files that are open for writing, and shared ones may be in a folder that is read-only.
    flags = os.O_RDONLY if kind == fcntl.LOCK_SH else os.O_RDWR
    with opened(folder, parent) as own:
        descriptor = _open_regular(IN_USE, flags, own)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def clean(parent: int) -> None:
    """Delete what killed saves and removals have left. What cannot be deleted now is left to the next call."""
    for name in folders_in(parent):
        if name.startswith(NEW):
            with suppress(OSError), locked(name, fcntl.LOCK_EX, parent):
                rename_gone(name, 0, parent)
    found = gone(parent)
    for version, name in found:
        with suppress(OSError):
            empty(name, parent)
            if version == 0 or version < found[-1][0]:
                os.rmdir(name, dir_fd=parent)


def rename_gone(name: str, version: int, parent: int) -> str:
    """Rename the folder of a version so that it is no longer listed, and return the new name."""
    renamed = f".gone-{version}-{secrets.token_hex(8)}"
    os.rename(name, renamed, src_dir_fd=parent, dst_dir_fd=parent)
    return renamed


def gone(parent: int) -> list[tuple[int, str]]:
    """Return the versions and the names of the folders ``.gone-*``, lowest first."""
    matches = map(GONE.fullmatch, folders_in(parent))
    return sorted((int(match[1]), match[0]) for match in matches if match)


def versions_in(parent: int) -> list[int]:
    """Return the versions in the folder of a model, lowest first."""
    return sorted(int(name) for name in folders_in(parent) if VERSION.fullmatch(name))


def folders_in(folder: int) -> list[str]:
    """Return the names of the folders in a folder, sorted. Links are left out."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def empty(name: str, parent: int) -> None:
    """Delete all that is in a folder."""
    try:
        with opened(name, parent) as folder, os.scandir(folder) as entries:
            for each in list(entries):
                _delete(each.name, folder)
    except RecursionError as exc:
        raise OSError(errno.ELOOP, "folders are nested too deeply") from exc


def _delete(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        empty(name, parent)
        os.rmdir(name, dir_fd=parent)


def create(name: str, folder: int) -> BinaryIO:
    """Create a file, and open it for writing. Raises FileExistsError if there is a file or a link with this name."""
    return os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder), "r+b")


def write_new(name: str, text: str, folder: int) -> None:
    """Write a read-only file to the disk. It replaces a file with this name."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    with create(name, folder) as file:
        file.write(text.encode())
        _write_through(file)


def copy_file(source: Path, name: str, folder: int) -> None:
    """Copy a file as a read-only one. Raises ValueError if it is not a regular file, and is not copied."""
    with open_regular(source, name) as file, create(name, folder) as copied:
        shutil.copyfileobj(file, copied)
        _write_through(copied)


def seal(folder: int) -> dict[str, StoredFile]:
    """Make the files of a version read-only, write them to the disk, and return their sizes and digests by name."""
    return {name: _seal(name, folder) for name in sorted(os.listdir(folder)) if name != IN_USE}


def _seal(name: str, folder: int) -> StoredFile:
    with os.fdopen(_open_regular(name, os.O_RDONLY, folder), "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        _write_through(file)
        return StoredFile(bytes=os.fstat(file.fileno()).st_size, sha256=digest)


def _write_through(file: BinaryIO) -> None:
    file.flush()
    os.fchmod(file.fileno(), 0o444)
    os.fsync(file.fileno())


def _open_regular(name: str, flags: int, folder: int) -> int:
    reason = f"{name!r} is not a regular file"
    try:
        descriptor = os.open(name, flags | SAFE, dir_fd=folder)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise OSError(exc.errno, reason) from exc
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, reason)
    return descriptor
