"""Tests of what a source may be, and how it is divided into parts."""

import os
import pickle
import threading
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from farandole.driver.batches.inputs import MOST_PARTS, Input, find_input
from farandole.exceptions import UsageError


def records(count):
    return [{"n": n, "text": str(n)} for n in range(count)]


def names(found, batch_size, part_rows=None):
    return [part.name for part in found.parts(found.part_rows(batch_size, part_rows))]


def test_parts_are_named_by_their_rows_and_consist_of_whole_batches():
    found = find_input(records(2500))
    assert names(found, 64, 1000) == [
        "part-00000000-00001024.parquet",
        "part-00001024-00002048.parquet",
        "part-00002048-00002500.parquet",
    ]
    assert names(found, 5000) == ["part-00000000-00002500.parquet"]
    assert len(names(found, 1, 1)) == 2500


@pytest.mark.parametrize(("rows", "part_rows"), [(10, 64), (3200, 128), (32_000, 1024), (5_000_000, 1024)])
def test_a_small_source_has_parts_for_many_ranks(rows, part_rows):
    assert Input(rows=rows, identity={}).part_rows(64, None) == part_rows


def test_a_large_source_has_larger_parts_and_longer_names():
    found = Input(rows=10**9, identity={})
    assert found.part_rows(64, None) == 100_032
    assert len(found.parts(100_032)) <= MOST_PARTS
    assert found.parts(100_032)[0].name == "part-0000000000-0000100032.parquet"


def test_records_are_sent_with_their_part():
    found = find_input(records(2000))
    assert found.source is None
    part = found.parts(1000)[1]
    assert pickle.loads(found.payload(part)).read(1500, 1502)["n"].tolist() == [1500, 1501]


@pytest.mark.parametrize("change", [{"n": -1}, {"text": "x"}])
@pytest.mark.parametrize("odd", [{}, {"array": np.zeros(2)}])
def test_the_identity_of_records_is_that_of_all_their_values(change, odd):
    first, equal = ([{**row, **odd} for row in records(1500)] for _ in range(2))
    other = [{**row, **odd} for row in records(1500)]
    other[1200] |= change
    assert find_input(first).identity == find_input(equal).identity != find_input(other).identity


def test_a_dataset_is_sent_whole():
    dataset = torch.utils.data.TensorDataset(torch.arange(30))
    found = find_input(dataset)
    assert found.rows == 30
    assert found.source.read(3, 5)["0"].tolist() == [3, 4]
    assert found.identity != find_input(torch.utils.data.TensorDataset(torch.arange(30) * 2)).identity
    assert find_input(np.arange(10)).source.read(0, 2)["item"].tolist() == [0, 1]


def test_a_folder_of_files(tmp_path):
    for name in ("b/2.png", "a.png", ".hidden", "_SUCCESS", "b/.git/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    found = find_input(str(tmp_path))
    assert found.source.read(0, 2) == {"path": ["a.png", "b/2.png"], "bytes": [b"a.png", b"b/2.png"]}
    before = found.identity
    assert (before["rows"], before["path"]) == (2, str(tmp_path))
    (tmp_path / "a.png").write_bytes(b"A.png")
    assert find_input(tmp_path).identity != before


def test_a_folder_with_names_that_no_column_can_have(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")).write_bytes(b"1")
    with pytest.raises(UsageError, match=r"the name of the file 'caf.udce9\.png' in .* is not UTF-8; rename the file"):
        find_input(tmp_path)


def test_a_link_to_nothing_in_a_folder_is_named(tmp_path):
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"cannot be read: 'gone.png': No such file or directory\. Check the path"):
        find_input(tmp_path)


def test_a_column_without_values_in_a_file_fits_the_others(tmp_path):
    pq.write_table(pa.table({"text": pa.nulls(2), "n": [1, 2]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"n": [3, 4], "text": ["a", "b"]}), tmp_path / "1.parquet")
    assert find_input(tmp_path).source.read(0, 4)["text"] == [None, None, "a", "b"]


@pytest.mark.parametrize("as_folder", [True, False])
def test_tables(tmp_path, as_folder):
    pq.write_table(pa.table({"n": range(10)}), tmp_path / "0.parquet")
    (tmp_path / "_manifest.json").write_text("{}")
    found = find_input(tmp_path if as_folder else tmp_path / "0.parquet")
    assert (found.rows, found.identity["rows"], found.identity["files"]) == (10, 10, 1)
    assert found.source.read(2, 4)["n"].tolist() == [2, 3]


def test_a_dask_dataframe_has_a_part_for_each_partition():
    frame = dd.from_pandas(pd.DataFrame({"n": range(10)}), npartitions=3)
    found = find_input(frame)
    parts = found.parts(found.part_rows(64, 500))
    assert [(part.name, part.start, part.stop) for part in parts] == [
        (f"part-0000000{place}-0000000{place + 1}.parquet", 0, None) for place in range(3)
    ]
    assert list(found.payload(parts[1]).compute(scheduler="synchronous")["n"]) == [4, 5, 6]
    assert found.identity != find_input(frame[frame.n > 2]).identity


def test_a_dask_dataframe_of_files_is_another_one_after_a_change(tmp_path):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    before = find_input(dd.read_parquet(tmp_path, filesystem="arrow")).identity
    assert find_input(dd.read_parquet(tmp_path, filesystem="arrow")).identity == before
    pq.write_table(pa.table({"n": [2]}), tmp_path / "a.parquet")
    assert find_input(dd.read_parquet(tmp_path, filesystem="arrow")).identity != before


def test_a_dask_dataframe_is_the_same_in_a_new_kernel():
    def identity(code, lines):
        there = {"__name__": "__main__"}
        exec(compile("\n" * lines + code, f"<cell {lines}>", "exec"), there)
        frame = dd.from_pandas(pd.DataFrame({"n": range(10)}), npartitions=3)
        return find_input(frame.map_partitions(there["f"])[["m"]]).identity

    code = "def f(frame): return frame.assign(m=frame.n * 2)"
    assert identity(code, 1) == identity(code, 9)
    assert identity(code, 1) != identity(code.replace("2", "3"), 1)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("/nowhere/images", "there is no file or folder /nowhere/images"),
        ("nope://bucket/rows", "nope://bucket/rows cannot be opened: Protocol not known"),
        ("s3://ada:secret@bucket/rows", "the URL of the data has a password"),
        (pa.table({"n": [1]}), "cannot read a source of type Table"),
        (dd.from_pandas(pd.Series([1]), npartitions=1), "cannot read a Series of Dask; .* to_frame of a series"),
        (dask.delayed(1), "cannot read a DelayedLeaf of Dask"),
        ([], "the source of type list has no rows"),
        ({"n": [1]}, "cannot read a source of type dict"),
        (pd.DataFrame({"n": [1]}), "dask.dataframe.from_pandas"),
        (iter([1]), "cannot read a source of type list_iterator"),
        ([{"a": 1}, {"b": 1}], "the last record has the columns 'b' after records with 'a'"),
    ],
)
def test_what_is_no_source_is_refused(source, said):
    with pytest.raises(UsageError, match=said):
        find_input(source)


def test_a_dataset_whose_rows_cannot_be_read_is_refused():
    class Broken:
        def __len__(self):
            return 3

        def __getitem__(self, row):
            raise KeyError(row)

    with pytest.raises(UsageError, match="row 0 of the dataset of type .*Broken cannot be read: KeyError"):
        find_input(Broken())


def test_folders_that_are_no_source_are_refused(tmp_path):
    with pytest.raises(UsageError, match=f"the source {tmp_path} has no rows"):
        find_input(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match="is no folder and no table"):
        find_input(tmp_path / "notes.txt")
    pq.write_table(pa.table({"n": [1]}), tmp_path / "0.parquet")
    (tmp_path / "notes.txt").unlink()
    pq.write_table(pa.table({"n": ["a"]}), tmp_path / "1.parquet")
    with pytest.raises(UsageError, match="1.parquet has the columns n: string, and .*0.parquet has n: int64"):
        find_input(tmp_path)
    (tmp_path / "1.parquet").write_bytes(b"no table")
    with pytest.raises(UsageError, match="1.parquet is not a Parquet or Arrow file that can be read"):
        find_input(tmp_path)


def test_records_that_cannot_be_pickled_are_refused():
    with pytest.raises(UsageError, match="the records of the source cannot be sent to the ranks: cannot pickle"):
        find_input([{"lock": threading.Lock()}])
