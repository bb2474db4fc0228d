"""Tests of parts: they are whole files or none, equal for equal rows, and name the record that fails."""

import errno
import pickle
import platform
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Status
from farandole.batches import parts, results
from farandole.batches.parts import Job, JobSpec, Part, open_job
from farandole.batches.sources import Files, MapDataset, Records
from farandole.batches.storage import Storage
from farandole.exceptions import ModelError, RankError

PYTHON = platform.python_version()


def spec(*stages, source=None, batch_size=4, skip=False, python=PYTHON):
    pickled = None if source is None else cloudpickle.dumps(source)
    return JobSpec(
        stages=cloudpickle.dumps(list(stages)), source=pickled, python=python, batch_size=batch_size, skip=skip
    )


def rows(count=10, first=0):
    return pickle.dumps(Records(records=[{"n": n} for n in range(first, first + count)], first=first))


def part(start=0, stop=10):
    return Part(name=f"part-{start}-{stop}.parquet", start=start, stop=stop)


def square(batch):
    return {"n": batch["n"], "square": batch["n"] ** 2}


def test_a_part_is_computed_in_batches_and_written(tmp_path):
    seen = []

    def note(batch):
        seen.append(len(batch["n"]))
        return batch

    job = Job(spec(square))
    job.__dict__["_chain"] = results.Chain([note, square])
    found = job.compute(part(10, 20), rows(first=10), tmp_path / "a")
    assert seen == [4, 4, 2]
    assert pq.read_table(tmp_path / "a").to_pydict()["square"] == [n**2 for n in range(10, 20)]
    assert (found.rows, found.size, found.columns) == (
        10,
        (tmp_path / "a").stat().st_size,
        {"n": pa.int64(), "square": pa.int64()},
    )


def test_equal_rows_give_equal_files(tmp_path):
    for name in "ab":
        open_job(spec(square)).compute(part(), rows(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_stages_are_made_once_and_are_no_part_of_the_pickle(tmp_path):
    made = []

    class Stage:
        def __init__(self):
            made.append(1)

        __call__ = staticmethod(square)

    job = Job(spec(square))
    job.__dict__["_chain"] = results.Chain([Stage])
    job.compute(part(), rows(), tmp_path / "a")
    job.compute(part(), rows(), tmp_path / "b")
    assert made == [1]
    pickle.loads(pickle.dumps(job)).compute(part(), rows(), tmp_path / "c")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()


def test_a_source_and_a_partition_are_read(tmp_path):
    Job(spec(square, source=MapDataset(dataset=[{"n": n} for n in range(10)]))).compute(part(), None, tmp_path / "a")
    frame = pd.DataFrame({"n": range(10)})
    found = Job(spec(square)).compute(Part(name="p", start=0, stop=None), frame, tmp_path / "b")
    assert found.rows == 10
    assert pq.read_table(tmp_path / "a") == pq.read_table(tmp_path / "b")


def fails_on(*bad):
    def stage(batch):
        if found := set(bad).intersection(batch["n"].tolist()):
            raise ValueError(f"cannot use {min(found)}")
        return {"n": batch["n"]}

    return stage


def test_the_first_record_that_fails_is_named(tmp_path):
    with pytest.raises(
        RankError, match=r"stage 1 \(stage\) failed on row 5 \({'n': 5}\) of part-0-10.parquet: ValueError"
    ):
        Job(spec(fails_on(7, 5))).compute(part(), rows(), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_records_that_fail_are_left_out_with_skip(tmp_path):
    found = Job(spec(fails_on(1, 5, 7), skip=True)).compute(part(), rows(), tmp_path / "a")
    assert pq.read_table(tmp_path / "a").to_pydict() == {"n": [0, 2, 3, 4, 6, 8, 9]}
    assert [(one.index, one.input, one.error) for one in found.skipped] == [
        (row, f"{{'n': {row}}}", f"ValueError: cannot use {row}") for row in (1, 5, 7)
    ]


def test_a_part_whose_records_all_fail_has_no_file(tmp_path):
    found = Job(spec(fails_on(*range(10)), skip=True)).compute(part(), rows(), tmp_path / "a")
    assert (found.rows, len(found.skipped), list(tmp_path.iterdir())) == (0, 10, [])


def test_a_batch_that_fails_only_as_a_whole_is_named(tmp_path):
    def small(batch):
        if len(batch["n"]) > 1:
            raise MemoryError("too large")
        return batch

    with pytest.raises(RankError, match="failed on the rows 0-1 of .*, but on none of them alone: MemoryError"):
        Job(spec(small)).compute(part(), rows(), tmp_path / "a")
    assert Job(spec(small, skip=True)).compute(part(), rows(), tmp_path / "a").rows == 10


def test_a_row_of_the_source_that_cannot_be_read_is_named_or_skipped(tmp_path):
    class Dataset:
        def __getitem__(self, row):
            if row == 3:
                raise OSError("broken image")
            return {"n": row}

    source = MapDataset(dataset=Dataset())
    with pytest.raises(RankError, match=r"reading the source failed on row 3 \(not readable: OSError\).*broken image"):
        Job(spec(square, source=source)).compute(part(), None, tmp_path / "a")
    assert Job(spec(square, source=source, skip=True)).compute(part(), None, tmp_path / "a").rows == 9


def refuse_nine(batch):
    if 9 in batch["n"]:
        raise ModelError("other columns")
    return batch


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (lambda batch: {("a" if 0 in batch["n"] else "b"): batch["n"]}, "have different columns: a and b"),
        (
            lambda batch: {"a": batch["n"].astype("float32" if 0 in batch["n"] else "int8")},
            "columns of different types",
        ),
        (
            lambda batch: {"a": [object() if n > 4 else n for n in batch["n"].tolist()]},
            r"the rows 4-7 of part-0-10.parquet: stage 1 \(<lambda>\) returned the column 'a', which Parquet",
        ),
        (
            lambda batch: {"a": batch["n"][batch["n"] < 5]},
            r"the rows 4-7 of part-0-10.parquet: stage 1 \(<lambda>\) returned 1 rows in the column 'a'",
        ),
        (refuse_nine, r"the rows 8-9 of part-0-10.parquet: stage 1 \(refuse_nine\): other columns"),
    ],
)
def test_batches_that_do_not_fit_are_refused_with_skip_as_well(tmp_path, stage, said):
    with pytest.raises(RankError, match=said):
        Job(spec(stage, skip=True)).compute(part(), rows(), tmp_path / "a")


def test_a_batch_without_any_value_has_the_type_of_the_others(tmp_path):
    def stage(batch):
        return {"a": [None if n < 4 else str(n) for n in batch["n"].tolist()]}

    assert Job(spec(stage)).compute(part(), rows(), tmp_path / "a").columns == {"a": pa.string()}


@pytest.mark.parametrize(("number", "remedy"), [(errno.ENOSPC, "Make room"), (errno.EACCES, "all workers can write")])
def test_a_part_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch, number, remedy):
    def fail(_descriptor):
        raise OSError(number, "the reason")

    monkeypatch.setattr(results.os, "fsync", fail)
    with pytest.raises(RankError, match=f"part-0-10.parquet cannot be written to .*: the reason. .*{remedy}"):
        Job(spec(square)).compute(part(), rows(), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_rank_does_not_see_is_named():
    with pytest.raises(RankError, match="cannot be written to /nowhere: No such file or directory"):
        Job(spec(square)).compute(part(), rows(), Path("/nowhere/a"))


def test_a_source_that_a_rank_does_not_see_is_named_and_not_skipped(tmp_path):
    source = Files(storage=Storage(str(tmp_path / "images")), paths=["a.png"])
    with pytest.raises(RankError, match=r"a rank does not see the source .*/images\. Choose a folder that all workers"):
        Job(spec(square, source=source, skip=True)).compute(part(0, 1), None, tmp_path / "a")


def test_a_stage_that_exits_fails_as_others_do(tmp_path):
    def leave(batch):
        raise SystemExit(2)

    with pytest.raises(RankError, match=r"stage 1 \(leave\) failed on row 0 .*: SystemExit: 2"):
        Job(spec(leave)).compute(part(), rows(), tmp_path / "a")


def test_a_source_that_exits_fails_as_others_do(tmp_path):
    class Dataset:
        def __getitem__(self, row):
            raise SystemExit(2)

    with pytest.raises(
        RankError, match=r"reading the source failed on row 0 \(not readable: SystemExit\).*: SystemExit: 2"
    ):
        Job(spec(square, source=MapDataset(dataset=Dataset()))).compute(part(), None, tmp_path / "a")


def leave():
    raise SystemExit(2)


class Exits:
    """Exits when it is unpickled, as a module with a call of argparse does."""

    def __reduce__(self):
        return leave, ()


def test_stages_that_exit_while_they_are_unpickled_are_reported(tmp_path):
    with pytest.raises(RankError, match="the stages cannot be unpickled on a rank: SystemExit: 2"):
        Job(spec(Exits())).compute(part(), rows(), tmp_path / "a")


def test_a_partition_whose_rows_do_not_fit_is_named(tmp_path):
    frame = pd.DataFrame({"n": range(10)})
    with pytest.raises(RankError, match="the rows 0-3 of part-7-8.parquet: .* returned 1 rows"):
        Job(spec(lambda batch: {"n": batch["n"][:1]})).compute(
            Part(name="part-7-8.parquet", start=0, stop=None), frame, tmp_path / "a"
        )


@pytest.mark.parametrize(
    ("task", "status", "computed"),
    [("executing", "running", 3), ("executing", "paused", 3), ("executing", "closed", 0), ("cancelled", "running", 0)],
)
def test_a_rank_stops_after_its_batch_if_the_driver_is_gone(tmp_path, monkeypatch, task, status, computed):
    tasks = {"key": SimpleNamespace(state=task)}
    worker = SimpleNamespace(state=SimpleNamespace(tasks=tasks), get_current_task=lambda: "key", status=Status[status])
    monkeypatch.setattr(parts, "get_worker", lambda: worker)
    seen = []
    job = Job(spec(square))
    job.__dict__["_chain"] = results.Chain([lambda batch: seen.append(1) or batch])
    job.compute(part(), rows(), tmp_path / "a")
    assert len(seen) == computed
    assert (tmp_path / "a").exists() == bool(computed)


def test_stages_of_another_python_are_refused(tmp_path):
    with pytest.raises(
        RankError, match="the stages cannot be used on the ranks: functions and classes of Python 3.9.1"
    ):
        Job(spec(lambda batch: batch, python="3.9.1")).compute(part(), rows(), tmp_path / "a")


def test_a_module_that_the_ranks_lack_is_named(tmp_path):
    stages = b"cmissing_module\nstage\n."
    job = Job(JobSpec(stages=stages, source=None, python=platform.python_version(), batch_size=4, skip=False))
    with pytest.raises(
        RankError, match="the stages cannot be unpickled on a rank: ModuleNotFoundError.*missing_module"
    ):
        job.compute(part(), rows(), tmp_path / "a")


def test_several_values_for_a_row_are_a_list(tmp_path):
    def boxes(batch):
        return {"boxes": [np.zeros((n % 3, 4)) for n in batch["n"].tolist()]}

    Job(spec(boxes)).compute(part(), rows(), tmp_path / "a")
    assert [len(one) for one in pq.read_table(tmp_path / "a")["boxes"].to_pylist()] == [n % 3 for n in range(10)]
