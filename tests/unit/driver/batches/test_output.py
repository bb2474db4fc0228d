"""Tests of the output of a job: its parts are read together, also if some have no value in a column."""

import pickle
import platform

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from farandole.batches.parts import Job, JobSpec, Part
from farandole.batches.sources import Records
from farandole.driver.batches.manifest import OutputFolder
from farandole.driver.batches.output import BatchOutput


def computed(folder, stage, starts, rows):
    """Compute parts with one stage, and return their output."""
    parts = [Part(name=f"part-{start}.parquet", start=start, stop=start + rows) for start in starts]
    python = platform.python_version()
    job = Job(JobSpec(stages=cloudpickle.dumps([stage]), source=None, python=python, batch_size=1, skip=False))
    output = OutputFolder(folder, {"stages": [], "source": {}}, parts, skip=False)
    for part in parts:
        target = output.temporary(part)
        records = Records(records=[{"n": n} for n in range(part.start, part.stop)], first=part.start)
        output.add(part, job.compute(part, pickle.dumps(records), target), target)
    output.close()
    return BatchOutput(folder=folder, parts=tuple(output.files), rows=output.rows)


@pytest.mark.parametrize("none", [None, [], np.zeros((0, 4)), np.zeros((0, 4), dtype=np.float32)])
def test_parts_without_any_box_are_read_with_the_others(tmp_path, none):
    def boxes(batch):
        return {"boxes": [np.full((1, 4), n, dtype=np.float32) if 3 < n < 6 else none for n in batch["n"].tolist()]}

    output = computed(tmp_path / "out", boxes, (0, 3, 6, 9), 3)
    expected = [[[float(n)] * 4] if 3 < n < 6 else none if none is None else [] for n in range(12)]
    for table in (output.table(), output.dataset().to_table()):
        assert table["boxes"].to_pylist() == expected
        assert table["boxes"].type.value_type.value_type == pa.float32()


def test_dicts_without_some_values_are_read_with_the_others(tmp_path):
    def about(batch):
        return {"about": [{"text": "a" if n else None, "scores": [] if n else [0.5]} for n in batch["n"].tolist()]}

    output = computed(tmp_path / "out", about, (0, 1), 1)
    for table in (output.table(), output.dataset().to_table()):
        assert table["about"].to_pylist() == [{"text": None, "scores": [0.5]}, {"text": "a", "scores": []}]


def test_an_output_without_parts_is_empty(tmp_path):
    output = BatchOutput(folder=tmp_path, parts=(), rows=0)
    assert (output.table().num_rows, output.dataset().count_rows()) == (0, 0)
