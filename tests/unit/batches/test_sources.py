"""Tests of the sources that ranks read."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from farandole.batches.sources import Files, Frame, MapDataset, Records, TableFiles, groups_of


def test_a_part_of_a_list_is_read_by_the_numbers_of_the_whole_list():
    source = pickle.loads(pickle.dumps(Records(records=[{"n": n} for n in range(10, 20)], first=10)))
    assert source.read(12, 15)["n"].tolist() == [12, 13, 14]
    assert source.label(13) == "{'n': 13}"


def test_a_dataset_is_asked_for_many_rows_at_once_if_it_can():
    class Slow:
        def __getitem__(self, row):
            return {"n": row}

    class Fast(Slow):
        def __getitems__(self, rows):
            return [{"n": -row} for row in rows]

    assert MapDataset(dataset=Slow()).read(1, 3)["n"].tolist() == [1, 2]
    assert MapDataset(dataset=Fast()).read(1, 3)["n"].tolist() == [-1, -2]


def test_files_are_read_when_they_are_needed(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    source = Files(folder=tmp_path, paths=["a", "gone"])
    assert source.read(0, 1) == {"path": ["a"], "bytes": [b"1"]}
    with pytest.raises(FileNotFoundError):
        source.read(0, 2)
    assert source.label(1) == "{'path': 'gone'}"


def write(path, table):
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=4)
    else:
        pyarrow.feather.write_feather(table, path, chunksize=4, compression="uncompressed")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_rows_of_tables_are_read_across_groups_and_files(tmp_path, suffix):
    groups = []
    for file, (start, stop) in enumerate([(0, 10), (10, 10), (10, 17)]):
        path = tmp_path / f"{file}{suffix}"
        write(path, pa.table({"n": np.arange(start, stop), "text": [str(n) for n in range(start, stop)]}))
        groups += groups_of(path)[1]
    source = pickle.loads(pickle.dumps(TableFiles(groups)))
    assert len(source) == 17
    for start, stop in [(0, 17), (0, 1), (3, 5), (9, 11), (16, 17)]:
        batch = source.read(start, stop)
        assert batch["n"].tolist() == list(range(start, stop))
        assert batch["text"] == [str(n) for n in range(start, stop)]
    assert source.label(12) == "{'n': 12, 'text': '12'}"


def test_a_row_group_is_read_once_for_many_batches(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    write(path, pa.table({"n": range(8)}))
    source, read = TableFiles(groups_of(path)[1]), []
    loaded = pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda *args: read.append(args[1]) or loaded(*args))
    for row in range(8):
        assert source.read(row, row + 1)["n"].tolist() == [row]
    assert read == [0, 1]


def test_a_partition_of_a_dataframe_has_no_index():
    frame = pd.DataFrame({"n": [1, 2, 3], "text": ["a", None, "c"]}, index=[7, 8, 9])
    source = Frame(frame)
    assert len(source) == 3
    assert {name: list(values) for name, values in source.read(1, 3).items()} == {"n": [2, 3], "text": [None, "c"]}
