"""Finds out what a user has given `Cluster.map_batches` as its source, and divides it into parts."""

from __future__ import annotations

import hashlib
import marshal
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle
import pyarrow as pa
from dask.base import tokenize

from farandole.batches.columns import BatchError, collate
from farandole.batches.parts import Part
from farandole.batches.sources import ARROW, PARQUET, Files, MapDataset, Records, Source, TableFiles, groups_of
from farandole.driver.data.digests import digest
from farandole.exceptions import UsageError
from farandole.reading import reason

PART_ROWS = 1000
"""The number of rows of a part, unless there would be more than `MOST_PARTS`."""
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
        rows = wanted or max(PART_ROWS, -(-self.rows // MOST_PARTS))
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
        found = _of_path(source)
    elif hasattr(source, "to_delayed") and hasattr(source, "npartitions"):
        found = _of_frame(source)
    elif isinstance(source, list | tuple):
        found = _of_records(source)
    elif _is_dataset(source):
        found = _of_dataset(source)
    else:
        raise UsageError(
            f"map_batches cannot read a source of type {type(source).__name__}; give a list of records, a dataset with "
            "__len__ and __getitem__, the path of a folder or of a Parquet or Arrow file, or a Dask dataframe, which "
            "dask.dataframe.from_pandas makes from one of pandas"
        )
    if not found.rows:
        raise UsageError(f"the source {_text(source)} has no rows")
    return found


def _is_dataset(source: Any) -> bool:
    # The items of a mapping or of a dataframe of pandas are no rows.
    by_name = isinstance(source, Mapping) or hasattr(source, "iloc")
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
    partitions = frame.to_delayed()

    def payload(part: Part) -> Any:
        return partitions[int(part.name.split("-")[1])]

    identity = {"kind": "dask", "partitions": frame.npartitions, "columns": list(map(str, frame.columns))}
    return Input(
        rows=frame.npartitions,
        identity={**identity, "graph": _graph_digest(frame.expr)},
        payload=payload,
        frame=True,
    )


def _graph_digest(expression: Any) -> str:
    """Return a digest of what a dataframe computes.

    Dask's own token has the place of the notebook's functions in files, so it would differ in a new kernel.
    """
    parts = getattr(expression, "operands", ())
    if not any(_is_expression(part) or isinstance(part, FunctionType) for part in parts):
        return str(tokenize(expression))
    return digest([type(expression).__name__, *map(_operand_digest, parts)])


def _is_expression(operand: Any) -> bool:
    return hasattr(operand, "operands")


def _operand_digest(operand: Any) -> str:
    if _is_expression(operand):
        return _graph_digest(operand)
    return digest(operand) if isinstance(operand, FunctionType) else str(tokenize(operand))


def _of_path(path: str | os.PathLike[str]) -> Input:
    if "://" in str(path):
        raise UsageError(
            f"map_batches does not read the address {path}; read it with Dask, for example with "
            "dask.dataframe.read_parquet, and give the dataframe"
        )
    place = Path(path).expanduser().absolute()
    if place.is_dir():
        names = list(_names(place))
        suffixes = {Path(name).suffix.lower() for name in names}
        if not suffixes & {*PARQUET, *ARROW}:
            return _of_files(place, names)
        if not (suffixes <= {*PARQUET} or suffixes <= {*ARROW}):
            raise UsageError(
                f"{place} has tables and other files ({', '.join(sorted(suffixes))}); give a folder with files of one "
                "kind"
            )
        return _of_tables(place, [place / name for name in names])
    if not place.exists():
        raise UsageError(f"there is no file or folder {place}; check the path, which is relative to {Path.cwd()}")
    if place.suffix.lower() not in {*PARQUET, *ARROW}:
        raise UsageError(
            f"{place} is no folder and no table ({', '.join((*PARQUET, *ARROW))}); to compute single files, give a "
            "folder with them"
        )
    return _of_tables(place, [place])


def _names(folder: Path) -> Iterator[str]:
    """Yield the sorted relative paths of the files in a folder, without files and folders that begin with . or _."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found += [os.path.relpath(Path(parent, name), folder) for name in names if not name.startswith((".", "_"))]
    yield from sorted(found)


def _of_files(folder: Path, names: Sequence[str]) -> Input:
    identity = {"kind": "files", "path": str(folder), "rows": len(names), **_sizes(folder, names)}
    return Input(rows=len(names), identity=identity, source=Files(folder=folder, paths=names))


def _of_tables(place: Path, files: Sequence[Path]) -> Input:
    groups, schema = [], None
    for file in files:
        try:
            found, own = groups_of(file)
        except (OSError, pa.ArrowException) as exc:
            raise UsageError(f"{file} is not a Parquet or Arrow file that can be read: {reason(exc)}") from exc
        if schema is not None and not found.equals(schema):
            raise UsageError(
                f"{file} has the columns {_columns(found)}, and {files[0]} has {_columns(schema)}; all files of a "
                "source must have the same columns and types"
            )
        schema = found
        groups += own
    source = TableFiles(groups)
    sizes = _sizes(place.parent if place.is_file() else place, [str(file) for file in files])
    identity = {"kind": "tables", "path": str(place), "rows": len(source), **sizes}
    return Input(rows=len(source), identity=identity, source=source)


def _sizes(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the number and the total size of files, and a digest of their names and sizes."""
    try:
        sizes = [(os.path.relpath(folder / name, folder), (folder / name).stat().st_size) for name in names]
    except OSError as exc:
        raise UsageError(f"a file of the source {folder} cannot be read: {reason(exc)}") from exc
    return {"files": len(sizes), "bytes": sum(size for _, size in sizes), "names": digest(sizes)}


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{one.name}: {one.type}" for one in schema)


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
