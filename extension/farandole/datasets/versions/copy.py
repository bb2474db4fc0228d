"""Copies a folder to a new version of a data set, and writes its manifest."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from farandole.datasets.versions.manifest import LOST_FOUND, MANIFEST, PART, digest_of, files_in, manifest_of
from farandole.exceptions import DataSetError, UsageError
from farandole.reading import open_regular, reason

CHUNK = 1_000_000
READ_ONLY_FILE, READ_ONLY_FOLDER, WRITABLE_FOLDER = 0o444, 0o555, 0o700


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What was copied: the number of files, their size in bytes, and the digest of the version."""

    files: int
    bytes: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file that was copied. ``state`` is that of the source when it was opened."""

    path: str
    digest: str
    size: int
    state: tuple[int, ...]


def copy_version(source: Path, target: Path) -> Copied:
    """Copy all files of a folder to an empty folder, and write their manifest there. All of it becomes read-only.

    Empty folders, owners, times and permissions are left out. After an error, the target is empty again. Raises:
        UsageError: the source has no files, or has links; or the target is not empty.
        DataSetError: a file cannot be read or written, or a file of the source changes meanwhile.
    """
    try:
        paths = files_in(source)
        _check_folders(source, target, paths)
        with _emptied_after_errors(target):
            files = [_copy_file(source, path, target) for path in paths]
            _check_unchanged(source, files)
            manifest = manifest_of((file.path, file.digest) for file in files)
            complete(target, manifest)
    except UsageError:
        raise
    except (OSError, ValueError) as exc:
        raise DataSetError(f"{source} could not be copied to {target}: {reason(exc)}") from exc
    return Copied(files=len(files), bytes=sum(file.size for file in files), digest=digest_of(manifest))


def complete(folder: Path, manifest: bytes) -> None:
    """Make a version of a folder that has the files of ``manifest``: they become read-only, and get their manifest.

    A folder without a manifest is no version. It therefore appears as a whole, after all files are on the disk.
    """
    _make_read_only(folder)
    # One call writes what may be millions of files to the disk.
    os.sync()
    part = folder / PART
    part.unlink(missing_ok=True)
    with part.open("xb") as file:
        file.write(manifest)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(READ_ONLY_FILE)
    part.rename(folder / MANIFEST)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # The folder of a volume may belong to root. Servers mount volumes read-only.
    if folder.stat().st_uid == os.geteuid():
        folder.chmod(READ_ONLY_FOLDER)


def clear(folder: Path) -> None:
    """Delete what is in a folder, also if it is read-only."""
    for path in folder.iterdir():
        if path.name == LOST_FOUND:
            continue
        if path.is_dir() and not path.is_symlink():
            delete(path)
        else:
            path.unlink()


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
            clear(folder)


def _check_folders(source: Path, target: Path, paths: list[str]) -> None:
    if not paths:
        raise UsageError(f"{source} has no files")
    if others := [one.name for one in target.iterdir() if one.name != LOST_FOUND]:
        raise UsageError(f"{target} is not empty: it has {others[0]!r}. A version of a data set is never replaced.")


def _copy_file(source: Path, path: str, target: Path) -> _File:
    """Copy a file, and return the digest and the number of the bytes that were written."""
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with open_regular(source, path) as read, (target / path).open("xb") as written:
        state = _state(os.fstat(read.fileno()))
        while chunk := read.read(CHUNK):
            digest.update(chunk)
            size += written.write(chunk)
    return _File(path=path, digest=digest.hexdigest(), size=size, state=state)


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _check_unchanged(source: Path, files: list[_File]) -> None:
    """Raise DataSetError if the source has changed since it was read: the copy would have states of several moments."""
    differing = {file.path for file in files} ^ set(files_in(source))
    if not differing:
        differing = {file.path for file in files if _state((source / file.path).lstat()) != file.state}
    if differing:
        raise DataSetError(
            f"{min(differing)!r} in {source} changed while it was copied, so nothing of it is kept. Try again when no "
            "program writes there."
        )


def _make_read_only(folder: Path) -> None:
    """Make all files and folders below a folder read-only."""
    for name, folders, files in os.walk(folder):
        if name == str(folder) and LOST_FOUND in folders:
            folders.remove(LOST_FOUND)
        for file in files:
            Path(name, file).chmod(READ_ONLY_FILE)
        if name != str(folder):
            Path(name).chmod(READ_ONLY_FOLDER)
