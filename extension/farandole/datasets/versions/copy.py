"""Copies a folder to a new version of a data set, and writes its manifest."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from farandole.datasets.versions.incomplete import complete, incomplete
from farandole.datasets.versions.manifest import LOST_FOUND, MANIFEST, PART, digest_of, files_in, manifest_of
from farandole.exceptions import DataSetError, UsageError
from farandole.reading import open_regular, reason

CHUNK = 1_000_000
WRITABLE_FOLDER = 0o700


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What was copied: the number of files, their size in bytes, and the digest of the version."""

    files: int
    bytes: int
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    """A copied file. ``state`` is a hash of the source's metadata when it was opened.

    Instances must be small, because a data set may have millions of files, and the hub's helper has little memory.
    """

    path: str
    digest: bytes
    size: int
    state: int


def copy_version(source: Path, target: Path) -> Copied:
    """Copy all files of a folder to an empty folder, and write their manifest there. All of it becomes read-only.

    Empty folders, owners, times and permissions are left out. What a killed process has left of a version is deleted
    first. After an error, the target is empty again. Raises:
        UsageError: the source has no files, or has links; or the target is not empty.
        DataSetError: a file cannot be read or written, or a file of the source changes meanwhile.
    """
    try:
        paths = files_in(source)
        if not paths:
            raise UsageError(f"{source} has no files")
        with incomplete(target) as part, _emptied_after_errors(target):
            _clear(target)
            files = [_copy_file(source, path, target) for path in paths]
            _check_unchanged(source, files)
            manifest = manifest_of((file.path, file.digest.hex()) for file in files)
            complete(target, part, manifest)
    except UsageError:
        raise
    except (OSError, ValueError) as exc:
        raise DataSetError(f"{source} could not be copied to {target}: {reason(exc)}") from exc
    return Copied(files=len(files), bytes=sum(file.size for file in files), digest=digest_of(manifest))


def delete(folder: Path) -> None:
    """Delete a folder, also if it is read-only."""
    for name, _, _ in os.walk(folder):
        # Files in read-only folders cannot be deleted.
        Path(name).chmod(WRITABLE_FOLDER)
    shutil.rmtree(folder)


@contextmanager
def _emptied_after_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        if not (folder / MANIFEST).exists():
            _clear(folder)
            (folder / PART).unlink(missing_ok=True)


def _clear(folder: Path) -> None:
    """Delete what is in a folder, except the mark of an incomplete version."""
    for path in folder.iterdir():
        if path.name in {LOST_FOUND, PART}:
            continue
        if path.is_dir() and not path.is_symlink():
            delete(path)
        else:
            path.unlink()


def _copy_file(source: Path, path: str, target: Path) -> _File:
    """Copy a file, and return the digest and the number of the bytes that were written."""
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with open_regular(source, path) as read, (target / path).open("xb") as written:
        found = os.fstat(read.fileno())
        # A file that grows as fast as it is read would fill the disk.
        while size <= found.st_size and (chunk := read.read(CHUNK)):
            digest.update(chunk)
            size += written.write(chunk)
    if size != found.st_size:
        raise _changed(source, path)
    return _File(path=path, digest=digest.digest(), size=size, state=_state(found))


def _state(found: os.stat_result) -> int:
    return hash((found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


def _check_unchanged(source: Path, files: list[_File]) -> None:
    """Raise DataSetError if the source has changed since it was read: the copy would have states of several moments."""
    paths = [file.path for file in files]
    if (now := files_in(source)) != paths:
        raise _changed(source, min(set(paths) ^ set(now)))
    for file in files:
        if _state((source / file.path).lstat()) != file.state:
            raise _changed(source, file.path)


def _changed(source: Path, path: str) -> DataSetError:
    return DataSetError(
        f"{path!r} in {source} changed while it was copied, so nothing of it is kept. Try again when no program writes "
        "there."
    )
