"""Computes batches, finds the records for which a stage fails, and writes the results as Parquet."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from farandole.batches.columns import BatchError, to_table
from farandole.batches.sources import Source
from farandole.batches.stages import USER_ERRORS, Chain, StageError, check_rows
from farandole.exceptions import RankError

COMPRESSION = "zstd"
ROW_GROUP = 16_384
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
SOURCE = "reading the source"
"""The name of the step before the first stage in messages."""


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A record that was left out.

    Attributes:
        index: its number in the source, or in the partition of a Dask dataframe.
        part: the file that has the results of its neighbours.
        input: the record as a short text.
        stage: the stage that failed.
        error: the error.
    """

    index: int
    part: str
    input: str
    stage: str
    error: str


class BatchRunner:
    """Computes the batches of one part."""

    def __init__(self, chain: Chain, source: Source, part: str, *, skip: bool) -> None:
        self.tables: list[pa.Table] = []
        self.skipped: list[Skipped] = []
        self._chain = chain
        self._source = source
        self._part = part
        self._skip = skip

    def run(self, start: int, stop: int) -> None:
        """Compute the rows from ``start`` to before ``stop`` as a batch, and add the result to `tables`.

        If that fails, compute the halves of the batch, and so on. A record that fails alone is added to `skipped`.

        Raises:
            RankError: a record fails and may not be skipped, or a stage returns something that is no batch.
        """
        try:
            self.tables.append(self._result(start, stop))
            return
        except StageError as exc:
            if stop - start == 1:
                self._leave_out(start, exc)
                return
            failure = exc
        middle = (start + stop) // 2
        self.run(start, middle)
        self.run(middle, stop)
        if not self._skip:
            raise RankError(
                f"{failure.stage} failed on {self._rows(start, stop)}, but on none of them alone: "
                f"{failure.error}. Use a smaller batch_size if it needs too much memory",
                traceback=failure.traceback,
            )

    def _result(self, start: int, stop: int) -> pa.Table:
        try:
            batch = self._source.read(start, stop)
        except USER_ERRORS as exc:
            raise StageError(SOURCE, exc) from exc
        try:
            check_rows("the source", batch, stop - start)
            return to_table(self._chain(batch, stop - start))
        except BatchError as exc:
            raise RankError(f"{self._rows(start, stop)}: {self._chain.last} {exc}") from exc
        except RankError as exc:
            raise RankError(f"{self._rows(start, stop)}: {exc}") from exc

    def _rows(self, start: int, stop: int) -> str:
        return f"the rows {start}-{stop - 1} of {self._part}"

    def _leave_out(self, row: int, failure: StageError) -> None:
        text = self._label(row)
        if not self._skip:
            raise RankError(
                f"{failure.stage} failed on row {row} ({text}) of {self._part}: {failure.error}. Leave out such "
                "records with `on_error='skip'`, or correct the stage or the record and choose another folder",
                traceback=failure.traceback,
            )
        self.skipped.append(Skipped(index=row, part=self._part, input=text, stage=failure.stage, error=failure.error))

    def _label(self, row: int) -> str:
        try:
            return self._source.label(row)
        except USER_ERRORS as exc:
            return f"not readable: {type(exc).__name__}"


def joined(tables: Sequence[pa.Table], part: str) -> pa.Table:
    """Return the tables of all batches as one. Raises RankError if they have different columns."""
    names = tables[0].column_names
    for table in tables:
        if sorted(table.column_names) != sorted(names):
            raise RankError(
                f"the batches of {part} have different columns: {', '.join(names)} and "
                f"{', '.join(table.column_names)}. A stage must return the same columns for each batch"
            )
    try:
        # This gives columns in which all values of some batches are None the type that they have in others.
        return pa.concat_tables([table.select(names) for table in tables], promote_options="default").combine_chunks()
    except pa.ArrowException as exc:
        raise RankError(
            f"the batches of {part} have columns of different types: {exc}. Return arrays of one dtype for each batch"
        ) from exc


def write(table: pa.Table, target: Path, part: str) -> tuple[int, str]:
    """Write a new Parquet file to the disk, and return its size in bytes and its SHA-256 digest.

    Equal tables give equal files. Raises RankError if the file cannot be written. Nothing of it is left then.
    """
    try:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression=COMPRESSION, row_group_size=ROW_GROUP)
    except pa.ArrowException as exc:
        raise RankError(f"the results of {part} cannot be stored as Parquet: {exc}. Return other columns") from exc
    data = sink.getvalue()
    try:
        with target.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        with suppress(OSError):
            target.unlink()
        remedy = "Make room" if exc.errno in FULL else "Choose a folder to which all workers can write"
        raise RankError(
            f"{part} cannot be written to {target.parent}: {exc.strerror or exc}. {remedy}, and call map_batches "
            "again. The parts that are complete are kept"
        ) from exc
    return data.size, hashlib.sha256(data).hexdigest()
