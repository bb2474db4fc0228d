"""Finds out what a user has given `Cluster.map_batches` as its source, and divides it into parts."""

from __future__ import annotations

import hashlib
import marshal
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pyarrow as pa
from dask.base import is_dask_collection

from farandole.batches.columns import BatchError, collate
from farandole.batches.parts import Part
from farandole.batches.sources import MapDataset, Records, Source
from farandole.datasets.digests import digest, frame_digest
from farandole.datasets.frames import is_frame
from farandole.driver.batches.paths import found_at
from farandole.exceptions import UsageError

PART_ROWS = 1000
"""The largest number of rows of a part, unless there would be more than `MOST_PARTS`."""
FEW_PARTS = 32
"""A source with fewer rows is divided into about this number of parts, so that all ranks have one."""
MOST_PARTS = 10_000
NAME_DIGITS = 8
RECORDS = "the records of the source"
CHUNK = 1000
"""The number of records whose digest is computed at once."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """A source.

    Attributes:
        rows: the number of its rows, or for a Dask dataframe of its partitions.
        identity: what distinguishes it from other sources, for the manifest.
        source: the source, if each rank reads it. The ranks get it once.
        payload: returns the rows of a part, if they are sent to the rank that computes it.
        frame: whether each part is a partition of a Dask dataframe.
    """

    rows: int
    identity: dict[str, Any]
    source: Source | None = None
    payload: Callable[[Part], Any] = lambda _part: None
    frame: bool = False

    def part_rows(self, batch_size: int, wanted: int | None) -> int:
        """Return how many rows a part has. All parts but the last one consist of whole batches."""
        if self.frame:
            return 1
        rows = wanted or max(min(PART_ROWS, -(-self.rows // FEW_PARTS)), -(-self.rows // MOST_PARTS))
        return -(-rows // batch_size) * batch_size

    def parts(self, part_rows: int) -> list[Part]:
        """Return all parts."""
        digits = max(NAME_DIGITS, len(str(self.rows)))
        edges = [(start, min(start + part_rows, self.rows)) for start in range(0, self.rows, part_rows)]
        return [
            Part(
                name=f"part-{start:0{digits}}-{stop:0{digits}}.parquet",
                start=0 if self.frame else start,
                stop=None if self.frame else stop,
            )
            for start, stop in edges
        ]


def find_input(source: Any) -> Input:
    """Return what a source is.

    Raises UsageError if there is no such path, if it has no rows, or if it is no source.
    """
    if isinstance(source, str | os.PathLike):
        files, identity = found_at(os.fspath(source))
        found = Input(rows=identity["rows"], identity=identity, source=files)
    elif is_dask_collection(source):
        found = _of_frame(source)
    elif isinstance(source, list | tuple):
        found = _of_records(source)
    elif _is_dataset(source):
        found = _of_dataset(source)
    else:
        raise UsageError(
            f"map_batches cannot read a source of type {type(source).__name__}; give a list of records, a dataset with "
            "__len__ and __getitem__, the path or URL of a folder or of a Parquet or Arrow file, or a Dask dataframe, "
            "which dask.dataframe.from_pandas makes from one of pandas"
        )
    if not found.rows:
        raise UsageError(f"the source {_text(source)} has no rows")
    return found


def _is_dataset(source: Any) -> bool:
    # The items of a mapping, of a table of Arrow or of a dataframe of pandas are no rows.
    by_name = isinstance(source, Mapping | pa.Table | pa.RecordBatch) or hasattr(source, "iloc")
    return hasattr(source, "__len__") and hasattr(source, "__getitem__") and not by_name


def _text(source: Any) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else f"of type {type(source).__name__}"


def _of_records(records: Sequence[Any]) -> Input:
    if records:
        _check_records(records)
    found = hashlib.sha256()
    for start in range(0, len(records), CHUNK):
        found.update(_records_digest(list(records[start : start + CHUNK])))

    def payload(part: Part) -> bytes:
        rows = Records(records=list(records[part.start : part.stop]), first=part.start)
        return pickled(rows, RECORDS)

    identity = {"kind": "records", "rows": len(records), "sha256": found.hexdigest()}
    return Input(rows=len(records), identity=identity, payload=payload)


def _check_records(records: Sequence[Any]) -> None:
    try:
        collate([records[0], records[-1]])
    except BatchError as exc:
        raise UsageError(f"the last record {exc}; all records must have the same keys") from exc


def _records_digest(records: list[Any]) -> bytes:
    """Return a digest of plain values quickly, and of others slowly."""
    try:
        # Format 0 does not depend on which of the values are the same objects.
        return hashlib.sha256(marshal.dumps(records, 0)).digest()
    except ValueError:
        pass
    try:
        return digest(records).encode()
    except Exception as exc:
        raise _unsendable(RECORDS, exc) from exc


def _of_dataset(dataset: Any) -> Input:
    rows = len(dataset)
    ends = MapDataset(dataset=dataset)
    identity = {"kind": "dataset", "type": _type(dataset), "rows": rows}
    if rows:
        identity |= {"first": _sample(ends, 0), "last": _sample(ends, rows - 1)}
    return Input(rows=rows, identity=identity, source=ends)


def _sample(dataset: MapDataset, row: int) -> str:
    try:
        return digest(dataset.read(row, row + 1))
    except Exception as exc:
        raise UsageError(
            f"row {row} of the dataset of type {_type(dataset.dataset)} cannot be read: {type(exc).__name__}: {exc}"
        ) from exc


def _of_frame(frame: Any) -> Input:
    if not is_frame(frame):
        raise UsageError(
            f"map_batches cannot read a {type(frame).__name__} of Dask; give a Dask dataframe, which the methods "
            "to_frame of a series and to_dataframe of a bag, and dask.dataframe.from_dask_array make"
        )
    partitions = frame.to_delayed()

    def payload(part: Part) -> Any:
        return partitions[int(part.name.split("-")[1])]

    identity = {
        "kind": "dask",
        "partitions": frame.npartitions,
        "columns": list(map(str, frame.columns)),
        "graph": frame_digest(frame),
    }
    return Input(rows=frame.npartitions, identity=identity, payload=payload, frame=True)


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def pickled(value: Any, what: str) -> bytes:
    """Return a pickle. Raises UsageError, which names the value as ``what``, if it cannot be pickled."""
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as exc:
        raise _unsendable(what, exc) from exc
    return data


def _unsendable(what: str, exc: Exception) -> UsageError:
    return UsageError(f"{what} cannot be sent to the ranks: {exc}; give data that can be pickled")
