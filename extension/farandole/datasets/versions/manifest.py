"""Manifests: the SHA-256 digests of all files in a folder, in the format of ``sha256sum``, sorted by path.

The digest of a whole data set is that of its manifest. ``sha256sum -c`` can verify a data set without this package.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from farandole.exceptions import DataSetError, UsageError
from farandole.reading import open_regular, reason

MANIFEST = ".manifest-sha256.txt"
"""Programs that read all files of a folder leave out names that begin with a dot."""
ESCAPES = ((b"\\", b"\\\\"), (b"\n", b"\\n"), (b"\r", b"\\r"))
"""How ``sha256sum`` writes characters that would break its lines."""
DIGEST_CHARACTERS = 64
LINE = re.compile(rb"(?P<escaped>\\?)(?P<digest>[0-9a-f]{64})  (?P<path>[^\n]+)")
UNESCAPED = {b"\\\\": b"\\", b"\\n": b"\n", b"\\r": b"\r"}
PART = f"{MANIFEST}.part"
"""A manifest that is being written. Only a complete one gets the name `MANIFEST`."""
LOST_FOUND = "lost+found"
"""A folder that the file system of a volume may have from the beginning."""
OUTSIDE = frozenset({MANIFEST, PART, LOST_FOUND})
"""The names in the folder of a version that its manifest leaves out."""


def files_in(folder: Path) -> list[str]:
    """Return the sorted paths of all files below a folder, without the manifest.

    Raises UsageError for links, pipes and the like, and OSError if the folder cannot be read.
    """
    found, folders = [], [""]
    while folders:
        prefix = folders.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if path in OUTSIDE:
                    continue
                if _is_folder(folder, path, entry.stat(follow_symlinks=False).st_mode):
                    folders.append(f"{path}/")
                else:
                    found.append(path)
    return sorted(found, key=os.fsencode)


def _is_folder(folder: Path, path: str, mode: int) -> bool:
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise UsageError(
            f"{path!r} in {folder} is neither a file nor a folder; a data set has no links, pipes or devices. "
            "`cp -rL` copies a folder with the files that its links name."
        )
    return stat.S_ISDIR(mode)


def manifest_of(digests: Iterable[tuple[str, str]]) -> bytes:
    """Return the manifest for pairs of a path and a digest, in the order of `files_in`."""
    manifest = BytesIO()
    # A list of the lines, which `bytes.join` makes, would take as much memory as the manifest of millions of files.
    manifest.writelines(_line(os.fsencode(path), digest.encode()) for path, digest in digests)
    return manifest.getvalue()


def _line(path: bytes, digest: bytes) -> bytes:
    escaped = path
    for character, replacement in ESCAPES:
        escaped = escaped.replace(character, replacement)
    return (b"" if escaped == path else b"\\") + digest + b"  " + escaped + b"\n"


def entries_of(manifest: bytes) -> dict[str, str]:
    """Return the digest of each path in a manifest. Raises ValueError if `manifest_of` would not have written it.

    No path of the result leads out of the folder, so a manifest from elsewhere can be used.
    """
    found = {}
    for number, line in enumerate(manifest.removesuffix(b"\n").split(b"\n"), start=1):
        entry = LINE.fullmatch(line)
        if entry is None:
            raise ValueError(f"line {number} of the manifest is not a digest and a path")
        path = os.fsdecode(_unescaped(entry["path"]) if entry["escaped"] else entry["path"])
        if not _is_inside(path):
            raise ValueError(f"line {number} of the manifest has the path {path!r}, which is not allowed")
        found[path] = entry["digest"].decode()
    if manifest != manifest_of((path, found[path]) for path in sorted(found, key=os.fsencode)):
        raise ValueError("the lines of the manifest are not sorted, or two have the same path")
    return found


def _unescaped(path: bytes) -> bytes:
    return re.sub(rb"\\[\\nr]", lambda found: UNESCAPED[found[0]], path)


def _is_inside(path: str) -> bool:
    parts = path.split("/")
    return not {"", ".", ".."} & set(parts) and parts[0] not in OUTSIDE and "\0" not in path


def digest_of(manifest: bytes) -> str:
    """Return the digest of a data set, such as ``sha256:9c3f...``, from its manifest."""
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def digest_in(folder: Path) -> str:
    """Return the digest of a version. Raises DataSetError if its folder has no manifest, or if it cannot be read."""
    try:
        # The manifest of millions of files has hundreds of megabytes.
        return f"sha256:{file_digest(folder, MANIFEST)}"
    except (OSError, ValueError) as exc:
        raise DataSetError(f"{folder} is not a version of a data set: {reason(exc)}") from exc


def verify(folder: Path) -> str:
    """Compare all files of a version with its manifest, and return the digest of the version.

    Raises DataSetError if a file is missing, is new or has another content, and UsageError for links.
    """
    digest = digest_in(folder)
    try:
        with open_regular(folder, MANIFEST) as file:
            manifest = file.read()
        found = manifest_of((path, file_digest(folder, path)) for path in files_in(folder))
    except (OSError, ValueError) as exc:
        raise DataSetError(f"{folder} cannot be verified: {reason(exc)}") from exc
    # This also compares the order of the lines, which is a part of the digest.
    if manifest != found:
        raise DataSetError(
            f"{folder} {_difference(manifest, found)}. Copy the version again from where it was published."
        )
    return digest


def _difference(manifest: bytes, found: bytes) -> str:
    lines = set(manifest.splitlines()) ^ set(found.splitlines())
    names = sorted({os.fsdecode(line.lstrip(b"\\")[DIGEST_CHARACTERS + 2 :]) for line in lines})
    if not names:
        return "has a manifest whose lines are not sorted or not unique"
    return f"differs from its manifest in {len(names)} file{'' if len(names) == 1 else 's'}, such as {names[0]!r}"


def file_digest(folder: Path, path: str) -> str:
    """Return the digest of a file. Raises OSError or ValueError if it cannot be read."""
    with open_regular(folder, path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
