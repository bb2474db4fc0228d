"""Arrow files in memory maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from farandole.datasets.contents import arrow_batches, arrow_reader, readable
from farandole.datasets.schemas import common_schema
from farandole.exceptions import UsageError

Numbers = npt.NDArray[np.int64]
ALIGNMENT = 8


class MappedTable:
    """The rows of uncompressed Arrow files. No data is read before rows are.

    Attributes:
        schema: the wanted columns.
        files: the content of each file, as a buffer.
        batches: the record batches of all files that have rows.
        file_of: the number of the file of each record batch.
        rows: the number of rows.
    """

    def __init__(self, paths: Sequence[Path], columns: Sequence[str], name: str) -> None:
        self.files = [_mapped(path) for path in paths]
        self.batches: list[pa.RecordBatch] = []
        self.file_of: list[int] = []
        schemas = []
        for number, (path, file) in enumerate(zip(paths, self.files, strict=True)):
            with readable(str(path)):
                schemas.append((str(path), arrow_reader(file)[0].schema))
                batches = [batch for batch in arrow_batches(file) if batch.num_rows]
            self.batches += batches
            self.file_of += [number] * len(batches)
        self.schema = common_schema(schemas, columns)
        self._ends = np.cumsum([batch.num_rows for batch in self.batches], dtype=np.int64)
        self._starts = self._ends - [batch.num_rows for batch in self.batches]
        if not self.batches:
            raise UsageError(f"fd.dataset: {name} has no rows. Check the file, or how it was filtered.")
        self.rows = int(self._ends[-1])

    def locate(self, indices: Sequence[Any]) -> tuple[Numbers, Numbers]:
        """Return the record batches of some rows, and the places of the rows in them. Raises IndexError."""
        rows = np.asarray(indices, dtype=np.int64)
        rows = np.where(rows < 0, rows + self.rows, rows)
        if len(wrong := np.flatnonzero((rows < 0) | (rows >= self.rows))):
            raise IndexError(f"the data set has {self.rows} rows, and no row {indices[wrong[0]]}")
        which = np.searchsorted(self._ends, rows, side="right")
        return which, rows - self._starts[which]

    def start(self, batch: int) -> int:
        """Return the number of the first row of a record batch."""
        return int(self._starts[batch])


def is_mappable(path: Path) -> bool:
    """Return whether rows of an Arrow file can be read without a copy, because the file is not compressed.

    Raises UsageError if it is no Arrow file.
    """
    file = _mapped(path)
    with readable(str(path)):
        # The first buffer that is compressed ends the search. Record batches that are read until then take no memory.
        return all(
            _is_within(buffer, file) for batch in arrow_batches(file) for column in batch for buffer in column.buffers()
        )


def _is_within(buffer: pa.Buffer | None, file: pa.Buffer) -> bool:
    if buffer is None or buffer.size == 0:
        return True
    place = int(buffer.address) - int(file.address)
    return 0 <= place < file.size and place % ALIGNMENT == 0


def _mapped(path: Path) -> pa.Buffer:
    with readable(str(path)), pa.memory_map(str(path)) as file:
        return file.read_buffer()
