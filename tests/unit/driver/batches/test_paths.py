"""Tests of the files and tables at a path. `map_batches` and `fd.dataset` find the same rows in a folder."""

import pickle
import random
import threading

import farandole as fd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from farandole.driver.batches import paths
from farandole.driver.batches.paths import found_at
from farandole.exceptions import UsageError
from pyarrow import feather, fs
from torch.utils.data import DataLoader

WAIT_SECONDS = 30


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "table"
    place.mkdir()
    return place


def arrow_file(table, path):
    feather.write_feather(table, path, chunksize=2, compression="uncompressed")


def arrow_stream(table, path):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def parquet(table, path):
    pq.write_table(table, path, row_group_size=2)


def of_map_batches(folder):
    source, about = found_at(str(folder))
    return pickle.loads(pickle.dumps(source)).read(0, about["rows"])


def of_dataset(folder):
    data = fd.dataset(folder)
    return next(iter(DataLoader(data, batch_size=len(data))))


@pytest.mark.parametrize(("write", "suffix"), [(parquet, "parquet"), (arrow_file, "feather"), (arrow_stream, "arrow")])
def test_both_readers_have_the_same_rows_in_the_same_order(folder, write, suffix):
    for part in random.Random(0).sample(range(11), 11):
        write(pa.table({"n": range(part * 5, part * 5 + 5)}), folder / f"part.{part}.{suffix}")
    for other in ("README.md", "_SUCCESS", ".part.0.crc"):
        (folder / other).write_text("no rows")
    batch, data = of_map_batches(folder), of_dataset(folder)
    assert list(batch) == list(data) == ["n"]
    assert batch["n"].tolist() == data["n"].tolist() == list(range(55))
    assert of_map_batches(folder / f"part.10.{suffix}")["n"].tolist() == [50, 51, 52, 53, 54]


def test_both_readers_have_the_columns_of_folders(folder):
    for year in (9, 10):
        (folder / f"year={year}" / "place=a%20b").mkdir(parents=True)
        parquet(pa.table({"n": range(year, year + 3)}), folder / f"year={year}" / "place=a%20b" / "0.parquet")
    batch, data = of_map_batches(folder), fd.dataset(folder, transform=dict)
    assert list(batch) == list(data[0])
    assert batch["place"] == [row["place"] for row in data] == ["a b"] * 6
    numbers = next(iter(DataLoader(fd.dataset(folder, ["n", "year"]), batch_size=6)))
    assert {name: (str(batch[name].dtype), batch[name].tolist()) for name in numbers} == {
        name: (str(values.numpy().dtype), values.tolist()) for name, values in numbers.items()
    }
    assert batch["year"].tolist() == [9] * 3 + [10] * 3
    # A single file has only its own columns, wherever it is.
    assert list(of_map_batches(folder / "year=9" / "place=a%20b" / "0.parquet")) == ["n"]


def test_a_column_of_a_folder_without_a_value(folder):
    for name in ("2026", "__HIVE_DEFAULT_PARTITION__"):
        (folder / f"year={name}").mkdir()
        parquet(pa.table({"n": [1]}), folder / f"year={name}" / "0.parquet")
    assert of_map_batches(folder)["year"] == [2026, None]
    assert [row["year"] for row in fd.dataset(folder, transform=dict)] == [2026, None]


def test_a_column_with_the_name_of_a_folder(folder):
    (folder / "year=2026").mkdir()
    parquet(pa.table({"n": [1], "year": pa.array([7], pa.int32())}), folder / "year=2026" / "0.parquet")
    assert of_map_batches(folder)["year"].tolist() == of_dataset(folder)["year"].tolist() == [2026]
    parquet(pa.table({"n": [1], "year": ["x"]}), folder / "year=2026" / "0.parquet")
    with pytest.raises(UsageError, match=r"folders in .*table cannot be read as columns: .*year.*Rename the folders"):
        of_map_batches(folder)
    with pytest.raises(UsageError, match="cannot be read: .*year"):
        fd.dataset(folder)


@pytest.mark.parametrize("read", [of_map_batches, of_dataset])
def test_what_neither_reader_takes(folder, read):
    parquet(pa.table({"n": [1]}), folder / "0.parquet")
    (folder / "1.parquet").symlink_to(folder / "nowhere")
    with pytest.raises(UsageError, match=r"cannot be read: '1.parquet': No such file or directory\. Check"):
        read(folder)
    (folder / "1.parquet").unlink()
    arrow_file(pa.table({"n": [2]}), folder / "1.arrow")
    with pytest.raises(UsageError, match=f"the folder {folder} has both Parquet and Arrow files; give a folder with"):
        read(folder)


def test_names_with_equal_numbers_have_one_order(folder):
    for name in ("part.1", "part.01", "part.001"):
        parquet(pa.table({"name": [name]}), folder / f"{name}.parquet")
    listed = fs.LocalFileSystem().get_file_info(fs.FileSelector(str(folder)))
    orders = {tuple(paths.table_of("", None, str(folder), files).files) for files in (listed, listed[::-1])}
    assert [[file.base_name for file in files] for files in orders] == [
        ["part.001.parquet", "part.01.parquet", "part.1.parquet"]
    ]


def test_files_are_opened_at_the_same_time_and_keep_their_order(folder, monkeypatch):
    for part in range(12):
        parquet(pa.table({"n": [part]}), folder / f"part.{part}.parquet")
    all_begun, opened = threading.Barrier(12, timeout=WAIT_SECONDS), paths.groups_of

    def wait_for_the_others(*arguments):
        all_begun.wait()
        return opened(*arguments)

    monkeypatch.setattr(paths, "groups_of", wait_for_the_others)
    assert of_map_batches(folder)["n"].tolist() == list(range(12))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_file_that_is_no_table_is_named_among_others(folder, suffix):
    write = parquet if suffix == "parquet" else arrow_stream
    for part in range(40):
        write(pa.table({"n": [part]}), folder / f"{part}.{suffix}")
    (folder / f"17.{suffix}").write_bytes(b"no table")
    with pytest.raises(UsageError, match=rf"17\.{suffix} is not a Parquet or Arrow file that can be read"):
        found_at(str(folder))


def test_local_files_and_folders_have_urls(folder):
    (folder / "year=2026").mkdir()
    parquet(pa.table({"n": [1, 2]}), folder / "year=2026" / "0.parquet")
    for url in (f"file://{folder}/", f"file://{folder.parent}//{folder.name}"):
        source, about = found_at(url)
        assert (about["path"], source.read(0, 2)["year"].tolist()) == (url, [2026, 2026])
    source, about = found_at(f"file://{folder}/year=2026/0.parquet")
    assert (about["files"], list(source.read(0, 2))) == (1, ["n"])


def test_an_arrow_stream_is_read_in_batches_of_any_size(folder):
    arrow_stream(pa.table({"n": range(9), "text": list("abcdefghi")}), folder / "0.arrow")
    source, about = found_at(str(folder))
    assert about["rows"] == 9
    assert source.read(3, 6)["text"] == ["d", "e", "f"]
    assert source.label(8) == "{'n': 8, 'text': 'i'}"
