"""The output folder of a job of `Cluster.map_batches`: its parts, and the manifest that describes them.

The names of the manifest and of the list of skipped records begin with an underscore, so that readers of folders of
Parquet files, such as pandas, Dask and Spark, leave them out.
"""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from farandole.batches.columns import merged_columns
from farandole.batches.parts import Part, PartResult
from farandole.batches.results import Skipped
from farandole.exceptions import RankError, UsageError
from farandole.reading import SAFE, read_json, reason, size_of
from farandole.runs.lifecycle.lock import NO_LOCK
from farandole.runs.writer import strict_json, write_atomically

MANIFEST = "_manifest.json"
ERRORS = "_errors.jsonl"
LOCK = ".lock"
FORMAT = 2
WRITE_SECONDS = 1.0
"""The shortest interval between two writes of the manifest. Parts that it lacks after a crash are computed again."""
WRITE_SHARE = 0.1
"""The largest share of the time in which the manifest is written. It can be large if many records are left out."""
MOST_SKIPPED = 100_000
"""The number of records that may be left out."""
MOST_BYTES = 512 * 2**20
PARTS = "part-*.parquet"


@dataclass(frozen=True, kw_only=True)
class StoredPart:
    """A complete part. Without rows, it has no file."""

    rows: int
    bytes: int
    sha256: str
    skipped: tuple[Skipped, ...] = ()


class OutputFolder:
    """The output folder of one job. Until `close`, no other process can use it."""

    def __init__(self, folder: Path, job: Mapping[str, Any], parts: Sequence[Part], *, skip: bool) -> None:
        """Open a folder, or make it.

        Raises UsageError if it cannot be used: it has the output of another job, or other files, or another process
        writes to it.
        """
        self.folder = folder
        self.parts = {part.name: part for part in parts}
        self.done: dict[str, StoredPart] = {}
        self._job = dict(job)
        self._columns: dict[str, pa.DataType] = {}
        self._next_write = 0.0
        self._lock = _locked(folder)
        try:
            self._clean()
            self._read(skip=skip)
            self._skipped = len(self.skipped)
        except BaseException:
            self.close()
            raise

    @property
    def missing(self) -> list[Part]:
        """The parts that have to be computed, in their order."""
        return [part for name, part in self.parts.items() if name not in self.done]

    @property
    def rows(self) -> int:
        """The number of rows of all complete parts."""
        return sum(part.rows for part in self.done.values())

    @property
    def files(self) -> list[Path]:
        """The files of the complete parts, in their order."""
        return [self.folder / name for name in self.parts if name in self.done and self.done[name].rows]

    @property
    def skipped(self) -> list[Skipped]:
        """All records that were left out, in their order."""
        return [one for name in self.parts if name in self.done for one in self.done[name].skipped]

    def temporary(self, part: Part) -> Path:
        """Return a new path to which a rank can write a part."""
        return self.folder / f".{part.name}.{secrets.token_hex(8)}.tmp"

    def begin(self) -> None:
        """Write the manifest before the first part. Raises UsageError if that is not possible.

        If this process is killed, the next call knows by it that the parts belong to the job.
        """
        try:
            self.write()
        except OSError as exc:
            raise self._unwritable(exc) from exc

    def add(self, part: Part, result: PartResult, temporary: Path) -> None:
        """Give a part that a rank has written its name, and write the manifest now or soon.

        Raises:
            RankError: its columns differ from those of the other parts, or too many records are left out.
            UsageError: the folder cannot be written, or the rank has another disk.
        """
        self._check_columns(part, result)
        self._check_skipped(result)
        try:
            if result.rows:
                temporary.rename(self.folder / part.name)
            else:
                (self.folder / part.name).unlink(missing_ok=True)
            self.done[part.name] = StoredPart(
                rows=result.rows, bytes=result.size, sha256=result.sha256, skipped=result.skipped
            )
            if time.monotonic() >= self._next_write:
                self.write()
        except FileNotFoundError as exc:
            raise UsageError(
                f"{part.name} is not in {self.folder}, although a rank has written it there, so the rank has another "
                "disk; choose a folder that the notebook and all workers share"
            ) from exc
        except OSError as exc:
            raise self._unwritable(exc) from exc

    def finish(self) -> None:
        """Write the manifest and the list of records that were left out. Raises UsageError if that is not possible."""
        lines = "".join(f"{strict_json(asdict(one))}\n" for one in self.skipped)
        try:
            self.write()
            if lines:
                write_atomically(self.folder / ERRORS, lines.encode(), durable=True, parents=False)
            else:
                (self.folder / ERRORS).unlink(missing_ok=True)
        except OSError as exc:
            raise self._unwritable(exc) from exc

    def write(self) -> None:
        """Write the manifest. Raises OSError."""
        began = time.monotonic()
        _sync(self.folder)
        known = {name: asdict(self.done[name]) for name in self.parts if name in self.done}
        columns = dict(sorted(self._columns.items()))
        content = {
            "format": FORMAT,
            "job": self._job,
            "columns": {name: str(kind) for name, kind in columns.items()},
            "schema": base64.b64encode(pa.schema(columns).serialize()).decode(),
            "parts": known,
        }
        data = strict_json(content, indent=1).encode()
        write_atomically(self.folder / MANIFEST, data, durable=True, parents=False)
        now = time.monotonic()
        self._next_write = now + max(WRITE_SECONDS, (now - began) / WRITE_SHARE)

    def close(self) -> None:
        """Let other processes use the folder."""
        self._clean()
        os.close(self._lock)

    def _clean(self) -> None:
        """Delete what ranks that were lost have left."""
        for path in self.folder.glob(".part-*.tmp"):
            with suppress(OSError):
                path.unlink()

    def _read(self, *, skip: bool) -> None:
        if not (self.folder / MANIFEST).exists():
            if any(not path.name.startswith(".") for path in self.folder.iterdir()):
                raise UsageError(
                    f"{self.folder} has files and no {MANIFEST}, so it is no output of map_batches; choose a new folder"
                )
            return
        try:
            found = read_json(self.folder, MANIFEST, MOST_BYTES)
            self._check_format(found["format"])
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"])))
            self._columns = {field.name: field.type for field in schema}
            parts = {name: _stored(about) for name, about in found["parts"].items()}
            changes = list(_changes(found["job"], self._job))
        except UsageError:
            raise
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
            raise UsageError(
                f"{MANIFEST} in {self.folder} cannot be read ({reason(exc)}); delete the folder, or choose another one"
            ) from exc
        # A job that has no part yet, because a stage fails, may be replaced by its corrected successor.
        if parts and changes:
            raise UsageError(
                f"{self.folder} has the output of another job: {'; '.join(changes)}. Use the same arguments to "
                "continue it, choose another folder, or delete this one to begin again"
            )
        self.done = {name: part for name, part in parts.items() if self._is_whole(name, part, skip=skip)}
        if not self.done:
            self._columns = {}
        self._remove_unknown()

    def _check_format(self, written: Any) -> None:
        if written != FORMAT:
            raise UsageError(
                f"{MANIFEST} in {self.folder} has the format {written!r}, and this version of Farandole reads the "
                f"format {FORMAT}; use the version that wrote it, or choose another folder"
            )

    def _remove_unknown(self) -> None:
        """Delete files of parts that will be computed again. Readers of the folder could take them for its content."""
        for path in self.folder.glob(PARTS):
            if path.name not in self.done:
                with suppress(OSError):
                    path.unlink()

    def _is_whole(self, name: str, part: StoredPart, *, skip: bool) -> bool:
        """Return whether a part need not be computed: the file has its size, and no record may be missing."""
        there = not part.rows or size_of(self.folder / name) == part.bytes
        return name in self.parts and there and (skip or not part.skipped)

    def _check_columns(self, part: Part, result: PartResult) -> None:
        """Raise RankError if a part has other columns than those before it. Columns without any value fit all."""
        if not result.columns:
            return
        known = self._columns or result.columns
        common = merged_columns(known, result.columns)
        if common is None:
            raise RankError(
                f"{part.name} has the columns {_listed(result.columns)}, and other parts have {_listed(known)}. Let "
                "the last stage return the same columns for each batch, as arrays of one dtype"
            )
        self._columns = common

    def _check_skipped(self, result: PartResult) -> None:
        self._skipped += len(result.skipped)
        if self._skipped > MOST_SKIPPED:
            raise RankError(
                f"more than {MOST_SKIPPED:,} records fail, and so many are not left out. The last one is "
                f"{result.skipped[-1].input}: {result.skipped[-1].error}. Correct the stage, and choose another folder"
            )

    def _unwritable(self, exc: OSError) -> UsageError:
        return UsageError(
            f"{self.folder} cannot be written: {exc.strerror or exc}. Make room, and call map_batches again. The parts "
            "that are complete are kept"
        )


def _stored(about: Mapping[str, Any]) -> StoredPart:
    skipped = tuple(Skipped(**one) for one in about["skipped"])
    return StoredPart(**{**about, "skipped": skipped})


def _listed(columns: Mapping[str, pa.DataType]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in columns.items())


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between two jobs, in words."""
    none: dict[str, Any] = {}
    for place, (was, now) in enumerate(zip_longest(old["stages"], new["stages"], fillvalue=none), 1):
        yield from _stage_changes(place, was, now)
    if old["source"] != new["source"]:
        yield _source_change(old["source"], new["source"])
    if old["batch_size"] != new["batch_size"]:
        yield f"batch_size was {old['batch_size']} and is {new['batch_size']}"
    if old["part_rows"] != new["part_rows"] and not _follows(old, new):
        yield f"part_rows was {old['part_rows']} and is {new['part_rows']}"


def _follows(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether part_rows, which is rounded up to whole batches, may differ only because of other arguments."""
    # All numbers of rows above `least` and up to `most` are rounded to the old part_rows and to the new one.
    least = max(job["part_rows"] - job["batch_size"] for job in (old, new))
    most = min(job["part_rows"] for job in (old, new))
    rounded = old["batch_size"] != new["batch_size"] and least < most
    return bool(old["source"] != new["source"] or rounded)


def _stage_changes(place: int, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if was.get("name") != now.get("name"):
        yield f"stage {place} was {was.get('name', 'none')} and is {now.get('name', 'none')}"
    elif was != now:
        yield f"the code of stage {place} ({now['name']}) has changed"


def _source_change(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    for name in ("kind", "path", "rows", "files", "bytes", "partitions"):
        if was.get(name) != now.get(name):
            return f"the source has changed ({name}: {was.get(name, 'none')} before, {now.get(name, 'none')} now)"
    return "the content of the source has changed"


def _locked(folder: Path) -> int:
    """Make a folder, and return a descriptor of its lock. Raises UsageError if it is locked or cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | SAFE, 0o600)
    except OSError as exc:
        raise UsageError(
            f"the output folder {folder} cannot be used: {exc.strerror or exc}; choose a folder that you can write to"
        ) from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        raise UsageError(
            f"another call of map_batches is writing to {folder}; wait for its end, or choose another folder"
        ) from exc
    except OSError as exc:
        if exc.errno not in NO_LOCK:
            os.close(descriptor)
            raise UsageError(f"the output folder {folder} cannot be locked: {exc.strerror or exc}") from exc
    return descriptor


def _sync(folder: Path) -> None:
    """Write the names of a folder's files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
