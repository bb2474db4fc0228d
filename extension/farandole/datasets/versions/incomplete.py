"""Folders in which a version is being written. It appears as a whole: its manifest gets its name last.

Until then, the folder has the file `PART`. Files in a folder without `PART` are not ours, and are never changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path

from farandole.datasets.versions.manifest import LOST_FOUND, MANIFEST, PART
from farandole.exceptions import DataSetError, UsageError

WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""The errors of network file systems that have no locks."""
READ_ONLY_FILE, READ_ONLY_FOLDER, WRITABLE_FILE = 0o444, 0o555, 0o600


def occupant(folder: Path) -> str | None:
    """Return the name of a file in the folder if no version may be written there. Raises OSError.

    That is the manifest of a complete version, or any file if no version was being written.
    """
    names = sorted(path.name for path in folder.iterdir() if path.name != LOST_FOUND)
    if MANIFEST in names:
        return MANIFEST
    return names[0] if names and PART not in names else None


@contextmanager
def incomplete(folder: Path) -> Iterator[BufferedRandom]:
    """Lock a folder for a version in this context, and yield its file `PART`.

    Raises:
        UsageError: the folder has a version, or other files.
        DataSetError: another process writes a version there.
    """
    _check_free(folder)
    with _open_part(folder) as part:
        try:
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise DataSetError(f"another process writes a version to {folder}; try again when it is done") from exc
        except OSError as exc:
            if exc.errno not in WITHOUT_LOCKS:
                raise
        # The process that had the lock may have ended in the meantime.
        if (folder / MANIFEST).exists():
            (folder / PART).unlink(missing_ok=True)
            _check_free(folder)
        if not _is_at(part, folder / PART):
            raise DataSetError(f"another process has written to {folder}; try again")
        yield part


def complete(folder: Path, part: BufferedRandom, manifest: bytes) -> None:
    """Make a version of a folder that has the files of ``manifest``: all become read-only, and `PART` the manifest."""
    _make_read_only(folder)
    # One call writes what may be millions of files to the disk.
    os.sync()
    part.truncate()
    part.write(manifest)
    part.flush()
    os.fsync(part.fileno())
    (folder / PART).rename(folder / MANIFEST)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # The folder of a volume may belong to root. Servers mount volumes read-only.
    if folder.stat().st_uid == os.geteuid():
        folder.chmod(READ_ONLY_FOLDER)


def _check_free(folder: Path) -> None:
    if found := occupant(folder):
        raise UsageError(f"{folder} is not empty: it has {found!r}. A version of a data set is never replaced.")


def _open_part(folder: Path) -> BufferedRandom:
    path = folder / PART
    with suppress(FileNotFoundError):
        # A process that was killed may have made it read-only.
        path.chmod(WRITABLE_FILE)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, WRITABLE_FILE)
    return os.fdopen(descriptor, "r+b")


def _is_at(file: BufferedRandom, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    return False


def _make_read_only(folder: Path) -> None:
    """Make all files and folders below a folder read-only."""
    for name, folders, files in os.walk(folder):
        if name == str(folder) and LOST_FOUND in folders:
            folders.remove(LOST_FOUND)
        for file in files:
            Path(name, file).chmod(READ_ONLY_FILE)
        if name != str(folder):
            Path(name).chmod(READ_ONLY_FOLDER)
