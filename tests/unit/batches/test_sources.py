"""Tests of the sources that ranks read."""

import pickle
from dataclasses import replace

import farandole as fd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from farandole.batches.sources import Files, Frame, MapDataset, Records, TableFiles, groups_of
from farandole.batches.storage import Storage
from farandole.datasets.contents import with_folders


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
    source = Files(storage=Storage(str(tmp_path)), paths=["a", "gone"])
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
    groups, storage = [], Storage(str(tmp_path))
    for file, (start, stop) in enumerate([(0, 10), (10, 10), (10, 17)]):
        path = tmp_path / f"{file}{suffix}"
        write(path, pa.table({"n": np.arange(start, stop), "text": [str(n) for n in range(start, stop)]}))
        schema, found = groups_of(storage, path.name)
        groups += found
    source = pickle.loads(pickle.dumps(TableFiles(storage, groups, schema)))
    assert len(source) == 17
    for start, stop in [(0, 17), (0, 1), (3, 5), (9, 11), (16, 17)]:
        batch = source.read(start, stop)
        assert batch["n"].tolist() == list(range(start, stop))
        assert batch["text"] == [str(n) for n in range(start, stop)]
    assert source.label(12) == "{'n': 12, 'text': '12'}"


def test_a_row_group_is_read_once_for_many_batches(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    write(path, pa.table({"n": range(8)}))
    schema, groups = groups_of(Storage(str(path)), "")
    source, read = TableFiles(Storage(str(path)), groups, schema), []
    loaded = pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda *args: read.append(args[1]) or loaded(*args))
    for row in range(8):
        assert source.read(row, row + 1)["n"].tolist() == [row]
    assert read == [0, 1]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_column_without_values_in_a_group_has_its_type_of_the_other_groups(tmp_path, suffix):
    storage, groups = Storage(str(tmp_path)), []
    for name, texts in [("0", pa.nulls(2)), ("1", pa.array(["a", "b"]))]:
        write(tmp_path / f"{name}{suffix}", pa.table({"text": texts}))
        schema, found = groups_of(storage, f"{name}{suffix}")
        groups += found
    assert TableFiles(storage, groups, schema).read(1, 3) == {"text": [None, "a"]}


def test_the_columns_of_folders_replace_those_of_the_file(tmp_path):
    write(tmp_path / "0.parquet", pa.table({"n": range(5), "year": pa.array([7] * 5, pa.int32())}))
    storage = Storage(str(tmp_path))
    schema, groups = groups_of(storage, "0.parquet")
    folders = {"year": pa.scalar(2026, pa.int32()), "place": pa.scalar(None, pa.string())}
    groups = [replace(group, folders=folders) for group in groups]
    source = pickle.loads(pickle.dumps(TableFiles(storage, groups, with_folders(schema, folders))))
    assert source.read(3, 5)["year"].tolist() == [2026, 2026]
    assert source.label(4) == "{'n': 4, 'year': 2026, 'place': None}"


def test_the_rows_of_fd_dataset_are_read_as_whole_columns(tmp_path):
    pq.write_table(pa.table({"n": range(9), "pair": [[n, -n] for n in range(9)]}), tmp_path / "a.parquet")
    batch = MapDataset(dataset=fd.dataset(tmp_path / "a.parquet")).read(3, 6)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "n": [3, 4, 5],
        "pair": [[3, -3], [4, -4], [5, -5]],
    }


def test_a_partition_of_a_dataframe_has_no_index():
    frame = pd.DataFrame({"n": [1, 2, 3], "text": ["a", None, "c"]}, index=[7, 8, 9])
    source = Frame(frame)
    assert len(source) == 3
    assert {name: list(values) for name, values in source.read(1, 3).items()} == {"n": [2, 3], "text": [None, "c"]}
