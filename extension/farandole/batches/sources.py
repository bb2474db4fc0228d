"""The sources of batches. A rank reads the rows of a source by their numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from farandole.batches.columns import Batch, collate, of_columns, of_table, shown
from farandole.batches.storage import Storage
from farandole.datasets.contents import arrow_reader
from farandole.datasets.sources import format_of

FIRST_COLUMN = pa.ipc.IpcReadOptions(included_fields=[0])
"""Options with which the rows of an Arrow file are counted. Other columns are neither fetched nor decompressed."""


class Source(Protocol):
    """The rows of a job, or those of one part. It is pickled for the ranks."""

    def read(self, start: int, stop: int) -> Batch:
        """Return the rows from ``start`` to before ``stop``. There is at least one. Raises any error."""

    def label(self, row: int) -> str:
        """Return a short text that tells a user which row this is. Raises any error."""


@dataclass(frozen=True, kw_only=True)
class Records:
    """Some records of a list, of which the first has the number ``first``."""

    records: Sequence[Any]
    first: int = 0

    def read(self, start: int, stop: int) -> Batch:
        """Return rows."""
        return collate(self.records[start - self.first : stop - self.first])

    def label(self, row: int) -> str:
        """Return the record."""
        return shown(self.records[row - self.first])


@dataclass(frozen=True, kw_only=True)
class MapDataset:
    """A dataset with ``__getitem__`` or, for many rows at once, ``__getitems__``, as those of PyTorch."""

    dataset: Any

    def read(self, start: int, stop: int) -> Batch:
        """Return rows."""
        rows = list(range(start, stop))
        if hasattr(self.dataset, "__getitems__"):
            found = self.dataset.__getitems__(rows)
            # The rows of `fd.dataset` have their columns as a whole.
            return of_columns(found.columns) if hasattr(found, "columns") else collate(found)
        return collate([self.dataset[row] for row in rows])

    def label(self, row: int) -> str:
        """Return the sample."""
        return shown(self.dataset[row])


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files of a folder. Their paths are relative to the folder."""

    storage: Storage
    paths: Sequence[str]

    def read(self, start: int, stop: int) -> Batch:
        """Return the paths and the contents of files."""
        paths = list(self.paths[start:stop])
        return {"path": paths, "bytes": self.storage.contents(paths)}

    def label(self, row: int) -> str:
        """Return the path."""
        return shown({"path": self.paths[row]})


class Tables(ABC):
    """Rows of Arrow tables."""

    @abstractmethod
    def _rows(self, start: int, stop: int) -> pa.Table:
        """Return rows as a table."""

    def read(self, start: int, stop: int) -> Batch:
        """Return rows."""
        return of_table(self._rows(start, stop))

    def label(self, row: int) -> str:
        """Return the values of the row."""
        return shown(self._rows(row, row + 1).to_pylist()[0])


class Frame(Tables):
    """A partition of a Dask dataframe. Rows are counted from its first one."""

    def __init__(self, frame: Any) -> None:
        self._table = pa.Table.from_pandas(frame, preserve_index=False)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _rows(self, start: int, stop: int) -> pa.Table:
        return self._table.slice(start, stop - start)


@dataclass(frozen=True, kw_only=True)
class Group:
    """A row group of a Parquet file, a record batch of an Arrow file, or all rows of an Arrow stream.

    Attributes:
        file: the path of the file below the folder.
        place: the number of the group in the file, or None for a stream.
        rows: the number of rows.
        folders: the columns that are the names of folders, such as ``year=2026``, and their values.
    """

    file: str
    place: int | None
    rows: int
    folders: Mapping[str, pa.Scalar] = field(default_factory=dict)

    def load(self, storage: Storage) -> pa.Table:
        """Return the rows. Those of an uncompressed Arrow file on a disk are not read before they are used."""
        if _is_arrow(storage, self.file):
            opened = storage.mapped(self.file)
            if self.place is None:
                return pa.ipc.open_stream(opened).read_all()
            return pa.Table.from_batches([pa.ipc.open_file(opened).get_batch(self.place)])
        with storage.open(self.file) as file, pq.ParquetFile(file, pre_buffer=True) as parquet:
            return self._with_folders(parquet.read_row_group(self.place))

    def _with_folders(self, table: pa.Table) -> pa.Table:
        for name, value in self.folders.items():
            own = table.drop_columns(name) if name in table.column_names else table
            table = own.append_column(name, pa.repeat(value, self.rows))
        return table


class TableFiles(Tables):
    """The rows of Parquet or Arrow files, with the columns of ``schema``."""

    def __init__(self, storage: Storage, groups: Sequence[Group], schema: pa.Schema) -> None:
        self.storage = storage
        self._groups = groups
        self._schema = schema
        self._edges = [0, *accumulate(group.rows for group in groups)]
        self._last: tuple[int, pa.Table] | None = None
        """The group that was read last. The next batch, and often the next part, is in the same one."""

    def __len__(self) -> int:
        return self._edges[-1]

    def _rows(self, start: int, stop: int) -> pa.Table:
        found, first = [], bisect_right(self._edges, start) - 1
        for place, (begin, end) in enumerate(pairwise(self._edges[first:]), first):
            if begin >= stop:
                break
            cut = max(start, begin)
            found.append(self._loaded(place).slice(cut - begin, min(stop, end) - cut))
        return pa.concat_tables(found)

    def _loaded(self, place: int) -> pa.Table:
        if self._last is None or self._last[0] != place:
            loaded = self._groups[place].load(self.storage)
            self._last = place, loaded.select(self._schema.names).cast(self._schema)
        return self._last[1]


def groups_of(storage: Storage, file: str) -> tuple[pa.Schema, list[Group]]:
    """Return the schema and the groups of a Parquet or Arrow file. Raises OSError, or an error of pyarrow."""
    if _is_arrow(storage, file):
        with storage.mapped(file) as opened:
            schema = arrow_reader(opened)[0].schema
            return schema, _groups(file, _sizes(opened))
    with storage.open(file) as read, pq.ParquetFile(read) as parquet:
        about = parquet.metadata
        sizes = [about.row_group(place).num_rows for place in range(about.num_row_groups)]
        return parquet.schema_arrow, _groups(file, dict(enumerate(sizes)))


def _sizes(file: pa.NativeFile) -> dict[int | None, int]:
    reader, count = arrow_reader(file, FIRST_COLUMN)
    if count is None:
        return {None: sum(batch.num_rows for batch in reader)}
    return {place: reader.get_batch(place).num_rows for place in range(count)}


def _is_arrow(storage: Storage, file: str) -> bool:
    return format_of(file or storage.path) == "arrow"


def _groups(file: str, sizes: Mapping[int | None, int]) -> list[Group]:
    return [Group(file=file, place=place, rows=rows) for place, rows in sizes.items() if rows]
