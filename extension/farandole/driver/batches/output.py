"""What `Cluster.map_batches` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.batches.results import Skipped
from farandole.runs.run import Run

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds


@dataclass(frozen=True, kw_only=True)
class BatchOutput:
    """The output of `Cluster.map_batches`.

    Attributes:
        folder: the output folder.
        parts: its files, in the order of the source.
        rows: the number of rows.
        skipped: the records that ``on_error="skip"`` left out. Each has ``index``, ``part``, ``input``, ``stage`` and
            ``error``.
        run: the run that computed the last parts. It is None if all parts were there.
    """

    folder: Path
    parts: tuple[Path, ...]
    rows: int
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)
    run: Run | None = None

    def table(self) -> pa.Table:
        """Read all rows into memory, in the order of the source."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = [pq.ParquetFile(part).read() for part in self.parts]
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def dataset(self) -> ds.Dataset:
        """Return a dataset of pyarrow, which reads the rows later."""
        import pyarrow as pa
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        schema = pa.unify_schemas([pq.read_schema(part) for part in self.parts]) if self.parts else pa.schema([])
        return ds.dataset([str(part) for part in self.parts], schema=schema, format="parquet")

    def __repr__(self) -> str:
        left_out = f", skipped: {len(self.skipped):,}" if self.skipped else ""
        return f"<BatchOutput {self.folder}: {self.rows:,} rows in {len(self.parts):,} parts{left_out}>"
