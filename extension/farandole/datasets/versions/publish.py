"""Publishes a folder as the next version of a data set.

On a hub without containers, this process copies it to a folder of the hub's state. On other hubs, the hub copies it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from farandole.datasets.versions.copy import Copied, copy_version, delete
from farandole.datasets.versions.hub import publish_at_hub
from farandole.datasets.versions.manifest import digest_in
from farandole.datasets.versions.names import NUMBER, DataVersion, check_name
from farandole.exceptions import DataSetError, UsageError
from farandole.reading import reason

PUBLISH_TO = "FARANDOLE_PUBLISH_TO"
"""The variable that the hub sets in the notebook servers of publishers: the folder of all data sets, or `AT_HUB`."""
AT_HUB = "hub"
NEW = ".new-"


@dataclass(frozen=True, kw_only=True)
class Published:
    """The result of a publication: the version, and what was copied."""

    version: DataVersion
    copied: Copied


def publish(source: Path, name: str) -> Published:
    """Copy a folder to the next version of a data set. Existing versions do not change.

    Raises:
        UsageError: the user may not publish here, the name or the folder is not valid, or a version has this content.
        DataSetError: the version cannot be written. No part of it is left.
    """
    if "@" in name:
        raise UsageError(f"leave out the version in {name!r}: the hub chooses the next one, and replaces none")
    check_name(name)
    place = _place()
    if not source.is_dir():
        raise UsageError(f"there is no folder {str(source)!r}")
    if place == AT_HUB:
        version, copied = publish_at_hub(source, name)
        return Published(version=version, copied=copied)
    return _publish_here(source, name, Path(place) / name)


def _place() -> str:
    if not (place := os.environ.get(PUBLISH_TO)):
        raise UsageError(
            "you cannot publish data sets here. The hub's administrator can name you in FARANDOLE_DATA_PUBLISHERS; "
            "restart your notebook server then."
        )
    return place


def _publish_here(source: Path, name: str, data_set: Path) -> Published:
    try:
        with _locked(data_set), _new_folder(data_set) as new:
            copied = copy_version(source, new)
            earlier = _versions(data_set)
            _refuse_equal(name, data_set, earlier, copied.digest)
            version = DataVersion(name=name, number=max(earlier, default=0) + 1)
            new.rename(data_set / str(version.number))
    except BlockingIOError as exc:
        raise DataSetError(f"another version of {name!r} is being published; try again when it is done") from exc
    except OSError as exc:
        raise DataSetError(f"{name!r} could not be published in {data_set}: {reason(exc)}") from exc
    return Published(version=version, copied=copied)


@contextmanager
def _locked(data_set: Path) -> Iterator[None]:
    """Lock a data set in this context. Raises BlockingIOError if another process has locked it."""
    data_set.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(data_set, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _new_folder(data_set: Path) -> Iterator[Path]:
    """Create a folder for a new version. Delete it in the end, unless it has been renamed."""
    for left in data_set.glob(f"{NEW}*"):
        # The data set is locked, so the process that wrote this folder was killed.
        delete(left)
    new = data_set / f"{NEW}{secrets.token_hex(8)}"
    new.mkdir()
    try:
        yield new
    finally:
        if new.exists():
            delete(new)


def _versions(data_set: Path) -> list[int]:
    return [int(path.name) for path in data_set.iterdir() if NUMBER.fullmatch(path.name)]


def _refuse_equal(name: str, data_set: Path, numbers: list[int], digest: str) -> None:
    for number in numbers:
        # Folders that the administrator has made may have no manifest yet.
        with suppress(DataSetError):
            if digest_in(data_set / str(number)) == digest:
                version = DataVersion(name=name, number=number)
                raise UsageError(f"the folder has the same files as {version}, so nothing was published; use {version}")
