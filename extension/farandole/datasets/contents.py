"""Reads the record batches of Parquet and Arrow files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import dataset as datasets
from pyarrow import ipc

from farandole.datasets.places import cause
from farandole.datasets.schemas import common_schema
from farandole.datasets.sources import Source
from farandole.exceptions import UsageError

BATCH_BYTES = 64 * 2**20
"""The approximate size of the record batches in a copy. Larger ones would take more memory while a table is copied."""
MOST_ROWS = 2**16
"""The largest number of rows that are read at once. Equal values take nearly no space in Parquet, but do so here."""
MAGIC = b"ARROW1"
"""How an Arrow file begins. Files without it have the same record batches as a stream."""


def copied_batches(source: Source, columns: Sequence[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the record batches of a table, with the wanted columns only.

    Raises UsageError, as the iterator does, if a file cannot be read or the files have different columns.
    """
    opened = _parquet if source.format == "parquet" else _arrow
    schema, batches = opened(source, columns)
    plain = pa.schema([field.with_type(_plain(field.type)) for field in schema])
    # The dictionaries of text may differ between batches, which Arrow files do not allow.
    return plain, _merged(batch if schema == plain else batch.cast(plain) for batch in batches)


def arrow_batches(file: Any) -> Iterator[pa.RecordBatch]:
    """Return the record batches of an Arrow file or stream, which is a buffer or an open file."""
    reader, count = arrow_reader(file)
    return iter(reader) if count is None else map(reader.get_batch, range(count))


def arrow_reader(file: Any, options: Any = None) -> tuple[Any, int | None]:
    """Return a reader, and the number of its record batches, or None for a stream."""
    buffer = pa.BufferReader(file) if isinstance(file, pa.Buffer) else file
    buffer.seek(0)
    begins = buffer.read(len(MAGIC))
    buffer.seek(0)
    if begins != MAGIC:
        return ipc.open_stream(file, options=options), None
    reader = ipc.open_file(file, options=options)
    return reader, reader.num_record_batches


def folder_columns(source: Source) -> list[dict[str, pa.Scalar]]:
    """Return the columns of each file that are the names of folders, such as ``year=2026``.

    Arrow files have no such columns. Raises OSError or an error of pyarrow, for example if a file has a column with
    the same name and another type.
    """
    if source.format == "arrow":
        return [{} for _ in source.files]
    table = _parquet_dataset(source)
    return [_folder_values(fragment, table.schema) for fragment in table.get_fragments()]


def with_folders(own: pa.Schema, folders: Mapping[str, pa.Scalar]) -> pa.Schema:
    """Return the schema of a file with the columns that are the names of folders."""
    for name, value in folders.items():
        own = own if name in own.names else own.append(pa.field(name, value.type))
    return own


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raise UsageError with the name of a file if it cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as exc:
        raise UsageError(
            f"fd.dataset: {name} cannot be read: {cause(exc)}. Write the file again, or leave it out."
        ) from exc


def _parquet(source: Source, columns: Sequence[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    with readable(source.name):
        table = _parquet_dataset(source)
    fragments = list(table.get_fragments())
    schema = common_schema(_schemas(fragments, table.schema), columns)
    return schema, _parquet_batches(fragments, schema)


def _parquet_dataset(source: Source) -> Any:
    return datasets.dataset(
        [file.path for file in source.files],
        filesystem=source.filesystem,
        format="parquet",
        partitioning="hive",
        partition_base_dir=source.folder,
    )


def _schemas(fragments: Sequence[Any], whole: pa.Schema) -> Iterator[tuple[str, pa.Schema]]:
    """Yield the name and the schema of each file, with the columns that are the names of folders."""
    for fragment in fragments:
        with readable(fragment.path):
            own = fragment.physical_schema
        yield fragment.path, with_folders(own, _folder_values(fragment, whole))


def _folder_values(fragment: Any, whole: pa.Schema) -> dict[str, pa.Scalar]:
    keys = datasets.get_partition_keys(fragment.partition_expression)
    return {name: pa.scalar(value, whole.field(name).type) for name, value in keys.items()}


def _parquet_batches(fragments: Sequence[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for fragment in fragments:
        with readable(fragment.path):
            yield from fragment.to_batches(schema=schema, batch_size=_rows(fragment.metadata), batch_readahead=1)


def _rows(metadata: Any) -> int:
    """Return the number of rows of a Parquet file that have about `BATCH_BYTES`."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    total = sum(int(group.total_byte_size) for group in groups)
    return max(1, min(MOST_ROWS, BATCH_BYTES * int(metadata.num_rows) // max(total, 1)))


def _arrow(source: Source, columns: Sequence[str]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    schema = common_schema([(file.path, _arrow_schema(source, file.path)) for file in source.files], columns)
    return schema, _arrow_batches(source, schema)


def _arrow_schema(source: Source, path: str) -> pa.Schema:
    with readable(path), source.filesystem.open_input_file(path) as file:
        return arrow_reader(file)[0].schema


def _arrow_batches(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for info in source.files:
        with readable(info.path), source.filesystem.open_input_file(info.path) as file:
            yield from (batch.select(schema.names).cast(schema) for batch in arrow_batches(file))


def _merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small record batches, because a row is found faster among few of them."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= BATCH_BYTES:
            yield from joined_batches(pa.Table.from_batches(pending))
            pending, size = [], 0
    if pending:
        yield from joined_batches(pa.Table.from_batches(pending))


def joined_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return the rows of a table in as few record batches as possible, which is one unless it has gigabytes of text."""
    return iter(table.combine_chunks().to_batches())


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
