"""Copies a folder to a new version of a data set, and writes its manifest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from farandole.datasets.versions.manifest import LOST_FOUND, MANIFEST, digest_of, files_in, manifest_of
from farandole.exceptions import DataSetError, UsageError
from farandole.reading import open_regular, reason

CHUNK = 1_000_000
READ_ONLY_FILE, READ_ONLY_FOLDER = 0o444, 0o555


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What was copied: the number of files, their size in bytes, and the digest of the version."""

    files: int
    bytes: int
    digest: str


def copy_version(source: Path, target: Path) -> Copied:
    """Copy all files of a folder to an empty folder, and write their manifest there. All of it becomes read-only.

    Empty folders, owners, times and permissions are left out. Raises:
        UsageError: the source has no files, or has links; or the target is not empty.
        DataSetError: a file cannot be read or written.
    """
    try:
        paths = files_in(source)
        _check_folders(source, target, paths)
        digests = [(path, *_copy_file(source, path, target)) for path in paths]
        manifest = manifest_of((path, digest) for path, digest, _ in digests)
        (target / MANIFEST).write_bytes(manifest)
        _make_read_only(target)
    except UsageError:
        raise
    except (OSError, ValueError) as exc:
        raise DataSetError(f"{source} could not be copied to {target}: {reason(exc)}") from exc
    return Copied(files=len(paths), bytes=sum(size for *_, size in digests), digest=digest_of(manifest))


def _check_folders(source: Path, target: Path, paths: list[str]) -> None:
    if not paths:
        raise UsageError(f"{source} has no files")
    if others := [one.name for one in target.iterdir() if one.name != LOST_FOUND]:
        raise UsageError(f"{target} is not empty: it has {others[0]!r}. A version of a data set is never replaced.")


def _copy_file(source: Path, path: str, target: Path) -> tuple[str, int]:
    """Copy a file, and return the digest and the number of the bytes that were written."""
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with open_regular(source, path) as read, (target / path).open("xb") as written:
        while chunk := read.read(CHUNK):
            digest.update(chunk)
            size += written.write(chunk)
    return digest.hexdigest(), size


def _make_read_only(folder: Path) -> None:
    for name, _, files in os.walk(folder, topdown=False):
        for file in files:
            Path(name, file).chmod(READ_ONLY_FILE)
        Path(name).chmod(READ_ONLY_FOLDER)
    # One call writes what may be millions of files to the disk.
    os.sync()
