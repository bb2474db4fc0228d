"""Safely reads files that another program may have damaged, replaced or made very large.

Only regular files are opened. Links below the given folder are not followed, and a pipe does not block the reader.
Functions that read raise OSError or ValueError, which `reason` converts to text for the user.
"""

from __future__ import annotations

import errno
import json
import os
import reprlib
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from farandole.exceptions import UsageError
from farandole.hyperparameters import checked
from farandole.protocol import GROUP_FOLDERS, LATEST, MOST_RANKS, Status, is_number, is_rank
from farandole.sizes import size_text

JSON_BYTES = 64 * 2**20
"""The maximum size of a JSON file in bytes. ``run.json`` contains a result of up to 1 MiB from each rank."""
SMALL_JSON_BYTES = 4 * 2**20
"""The maximum size, in bytes, of a JSON file without user data."""
MOST_VALUES = 8_000_000
"""The maximum number of values in a JSON document, where a list or object counts as four values. Parsed values take up
to 30 times as much memory as their text."""
MOST_LEVELS = 100
"""The maximum nesting depth of lists and objects."""
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for `os.open` that refuse symbolic links and prevent pipes from blocking."""
Version: TypeAlias = tuple[int, ...]
"""Numbers that change whenever a file or folder changes. There are no numbers if it does not exist."""


def open_regular(folder: Path, name: str) -> BufferedReader:
    """Open ``name``, which must be a regular file below ``folder``, for reading. The folder itself may be a link."""
    check_parents(folder, name)
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | SAFE)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise ValueError(f"{name!r} is a symbolic link") from exc
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{name!r} is not a regular file")
    return os.fdopen(descriptor, "rb")


def check_parents(folder: Path, name: str) -> None:
    """Raise ValueError unless ``name`` is below ``folder`` and no folder in between is a symbolic link."""
    path = PurePath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is not below the folder")
    for parent in path.parents[:-1]:
        if (folder / parent).is_symlink():
            raise ValueError(f"{str(parent)!r} is a symbolic link")


def other_writer(path: Path, groups: Path = Path(GROUP_FOLDERS)) -> str | None:
    """Return the reason why other users can write to a folder or its files, or None if only this user and root can.

    On the servers of a hub, all users have the same user id, so the owner of a file in a group's folder proves nothing.
    All files below ``groups`` therefore count as written by others. Raises OSError if the folder cannot be read.
    """
    real = path.resolve()
    if real.is_relative_to(groups.resolve()):
        return f"{real} is in the folder of a group, where all members can write"
    for each in (real, *real.iterdir()):
        if fault := _fault(each.lstat()):
            return f"{each} {fault}"
    return None


def _fault(found: os.stat_result) -> str | None:
    if found.st_uid not in {0, os.geteuid()}:
        return f"belongs to user id {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):
        return "is a link"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by all users; if nobody did, run `chmod -R go-w` on the folder"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid):
        return f"can be written by the group {found.st_gid}; if nobody did, run `chmod -R go-w` on the folder"
    return None


def _is_private(group: int) -> bool:
    """Return whether a group counts as private: root's group, or the group whose id is the user's id.

    Many systems give each user a group with the user's id. On Kubernetes, this group can write to a volume's files.
    """
    return group in {0, os.geteuid()}


def open_new(path: Path) -> FileIO:
    """Open a new, unbuffered file that only this user can write, and replace any file, link or pipe at that path."""
    path.unlink(missing_ok=True)
    return FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "w")


def read_bytes(folder: Path, name: str, limit: int) -> bytes:
    """Return the content of a file; raises ValueError if the file is larger than ``limit`` bytes."""
    with open_regular(folder, name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(f"{name!r} has {size_text(size)}, and at most {size_text(limit)} are read")
        return file.read(size)


def read_json(folder: Path, name: str, limit: int = JSON_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file."""
    return parse_json(read_bytes(folder, name, limit), repr(name))


def parse_json(data: bytes | str, what: str) -> dict[str, Any]:
    """Parse a JSON object, which error messages refer to as ``what``."""
    text = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    if text.count(b",") + 4 * (text.count(b"[") + text.count(b"{")) > MOST_VALUES:
        raise ValueError(f"{what} has too many values")
    try:
        value = json.loads(text)
    except RecursionError as exc:
        raise ValueError(f"{what} is nested too deeply") from exc
    except ValueError as exc:
        raise ValueError(f"{what} is not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    check_levels(value, what)
    return value


def check_levels(value: Any, what: str, most: int = MOST_LEVELS) -> None:
    """Raise ValueError if lists and objects are nested more than ``most`` levels deep."""
    level = [value]
    for _ in range(most + 1):
        nested = [one for one in level if isinstance(one, dict | list)]
        if not nested:
            return
        level = [item for one in nested for item in (one.values() if isinstance(one, dict) else one)]
    raise ValueError(f"{what} is nested too deeply")


def check_types(record: Mapping[str, Any], kinds: Mapping[str, str], what: str) -> None:
    """Raise ValueError unless each value in a record has its type from ``kinds``, such as ``text or null``.

    Values whose names are not in ``kinds`` must be strings.
    """
    for name, value in record.items():
        wanted = kinds.get(name, "text")
        if not any(VALID[kind](value) for kind in wanted.split(" or ")):
            raise ValueError(f"{name!r} in {what} must be of type {wanted}, not {printable(reprlib.repr(value))}")


def _is_process(value: Any) -> bool:
    """Return whether a value is an empty object or has the form that `farandole.runs.folder.this_process` returns."""
    if not isinstance(value, dict) or not value:
        return value == {}
    pid = value.get("pid")
    return (
        isinstance(value.get("host"), str) and type(pid) is int and 0 <= pid < 2**31 and _is_time(value.get("started"))
    )


def _is_time(value: Any) -> bool:
    return is_number(value) and 0 <= value < LATEST


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _are_ranks(value: Any) -> bool:
    """Return whether a value is a list of triples, each with a worker, a rank, and whether the rank is alive."""
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 3 and isinstance(one[0], str) and is_rank(one[1]) and type(one[2]) is bool
        for one in value
    )


def _are_results(value: Any) -> bool:
    """Return whether a value is a JSON object whose keys are rank numbers."""
    return isinstance(value, dict) and all(key.isdecimal() and len(key) < 10 for key in value)


def _are_hyperparameters(value: Any) -> bool:
    try:
        return isinstance(value, dict) and checked(value) == value
    except UsageError:
        return False


VALID: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "null": lambda value: value is None,
    "flag": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "texts": _are_texts,
    "status": lambda value: value in list(Status),
    "time": _is_time,
    "count of ranks": lambda value: is_rank(value) or value == MOST_RANKS,
    "count of workers": is_rank,
    "ranks": _are_ranks,
    "count": lambda value: type(value) is int and 0 <= value < 2**53,
    "pause": lambda value: value in ("memory", "training"),
    "process": _is_process,
    "results": _are_results,
    "hyper-parameters": _are_hyperparameters,
}
"""For each kind of value, the function that checks whether an untrusted value is of that kind."""


def reason(error: Exception) -> str:
    """Return why a file could not be read, without characters that are not printable."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{Path(os.fsdecode(error.filename)).name!r}: {error.strerror}"
    return printable(str(error) or type(error).__name__)


def printable(text: str) -> str:
    """Replace each character that is not printable with a question mark."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def version_of(path: str | Path) -> Version:
    """Return the version of one file or folder. Symbolic links are not followed."""
    with suppress(OSError, ValueError):
        stat = os.lstat(path)
        return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
    return ()


def versions_of(paths: Iterable[Path]) -> tuple[Version, ...]:
    """Return the versions of several files or folders."""
    return tuple(map(version_of, paths))


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it does not exist. Symbolic links are not followed."""
    with suppress(OSError, ValueError):
        return path.lstat().st_size
    return 0
