"""Copies a version to another cluster: only files that are missing there, each verified, and the manifest last.

A mirror that was interrupted continues where it ended.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from farandole.datasets.versions.copy import CHUNK, WRITABLE_FOLDER
from farandole.datasets.versions.incomplete import complete, incomplete
from farandole.datasets.versions.manifest import (
    LOST_FOUND,
    MANIFEST,
    digest_in,
    digest_of,
    entries_of,
    file_digest,
    files_in,
)
from farandole.datasets.versions.sources import FolderSource, Source
from farandole.exceptions import DataSetError, UsageError
from farandole.reading import reason


@dataclass(frozen=True, kw_only=True)
class Mirrored:
    """What a mirror has done: the number of copied files and of all files, and the digest of the version."""

    copied: int
    files: int
    digest: str


def mirror(source: Source, target: Path, *, others: Iterable[Path] = ()) -> Mirrored:
    """Copy a version to an empty folder, or to one in which an earlier mirror has ended. Equal files there are kept.

    ``others`` are folders of other versions on this machine. Files with the same content are copied from there.

    Raises:
        UsageError: the folder has another version, or other files.
        DataSetError: a file cannot be read or written, or differs from the manifest. Equal files are kept.
    """
    manifest = source.manifest()
    digest = digest_of(manifest)
    try:
        entries = entries_of(manifest)
        if (target / MANIFEST).exists():
            _check_same(target, digest)
            return Mirrored(copied=0, files=len(entries), digest=digest)
        with incomplete(target) as part:
            missing = _prepare(target, entries)
            _copy(source, target, missing, others)
            complete(target, part, manifest)
    except UsageError:
        raise
    except (OSError, ValueError) as exc:
        raise DataSetError(f"the mirror in {target} is not complete: {reason(exc)}. Run it again to continue.") from exc
    return Mirrored(copied=len(missing), files=len(entries), digest=digest)


def _check_same(target: Path, digest: str) -> None:
    if (found := digest_in(target)) != digest:
        raise UsageError(
            f"{target} has a version with the digest {found}, and the source has {digest}. A version is never replaced."
        )


def _prepare(target: Path, entries: dict[str, str]) -> dict[str, str]:
    """Delete the files that the version does not have, and return the digests of those to copy by path."""
    missing = dict(entries)
    for name, folders, _ in os.walk(target):
        folders[:] = [each for each in folders if name != str(target) or each != LOST_FOUND]
        if not os.access(name, os.W_OK):
            # An earlier run has ended while it made the folders read-only.
            Path(name).chmod(WRITABLE_FOLDER)
    for path in files_in(target):
        if path in entries and file_digest(target, path) == entries[path]:
            del missing[path]
        else:
            (target / path).unlink()
    _delete_empty_folders(target)
    return missing


def _delete_empty_folders(target: Path) -> None:
    for name, _, _ in os.walk(target, topdown=False):
        if name != str(target) and name != str(target / LOST_FOUND):
            with suppress(OSError):
                Path(name).rmdir()


def _copy(source: Source, target: Path, missing: dict[str, str], others: Iterable[Path]) -> None:
    nearby = _nearby(others, set(missing.values()))
    # A file that an interrupted mirror has left is not in the manifest, so `_prepare` deletes it.
    part = target / f".mirror-{secrets.token_hex(8)}"
    for path, digest in missing.items():
        if not _take(nearby.get(digest, ()), part, digest):
            _fetch(source, path, part, digest)
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        part.rename(target / path)


def _nearby(others: Iterable[Path], wanted: set[str]) -> dict[str, list[tuple[Source, str]]]:
    """Return where other versions have the wanted digests."""
    found: dict[str, list[tuple[Source, str]]] = {}
    for folder in others:
        source = FolderSource(folder)
        # A damaged version is no reason to stop, because the source has all files.
        with suppress(DataSetError, ValueError):
            for path, digest in entries_of(source.manifest()).items():
                if digest in wanted:
                    found.setdefault(digest, []).append((source, path))
    return found


def _take(origins: Iterable[tuple[Source, str]], part: Path, digest: str) -> bool:
    """Copy a file from another version on this machine to ``part``. Return whether one has it with this digest."""
    for source, path in origins:
        with suppress(OSError, ValueError):
            if _download(source, path, part) == digest:
                return True
    return False


def _fetch(source: Source, path: str, part: Path, digest: str) -> None:
    """Copy a file from the source to ``part``."""
    if _download(source, path, part) != digest:
        part.unlink()
        raise DataSetError(
            f"{path!r} from the source differs from its manifest: the connection ended early, or the version there is "
            "damaged. Run the mirror again to continue; if this remains, verify the version there."
        )


def _download(source: Source, path: str, part: Path) -> str:
    """Write a file of the source to ``part``, and return the digest of what was written."""
    digest = hashlib.sha256()
    try:
        with source.open(path) as read, part.open("wb") as written:
            while chunk := read.read(CHUNK):
                digest.update(chunk)
                written.write(chunk)
    except HTTPException as exc:
        raise DataSetError(f"the connection ended while {path!r} was copied; run the mirror again to continue") from exc
    return digest.hexdigest()
