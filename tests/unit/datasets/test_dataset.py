"""Tables on disk as data sets of PyTorch: their items, batches, pickles and refusals."""

import pickle
import random
from datetime import UTC, datetime

import farandole as fd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from farandole.exceptions import UsageError
from pyarrow import feather
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

ROWS = 1000


def table(rows=ROWS, start=0):
    numbers = np.arange(start, start + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "x": pa.array(numbers / 8, pa.float32()),
            "flag": pa.array(numbers % 3 == 0),
            "pair": pa.array([[number, -number] for number in numbers.tolist()], pa.list_(pa.int32())),
            "grid": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 6), pa.float64()), 6),
        }
    )


def expected(index):
    return {
        "id": torch.tensor(index),
        "x": torch.tensor(index / 8, dtype=torch.float32),
        "flag": torch.tensor(index % 3 == 0),
        "pair": torch.tensor([index, -index], dtype=torch.int32),
        "grid": torch.full((6,), index, dtype=torch.float64),
    }


def same(item, other):
    return item.keys() == other.keys() and all(
        item[name].dtype == other[name].dtype and torch.equal(item[name], other[name]) for name in item
    )


def parquet_file(folder):
    pq.write_table(table(), folder / "table.parquet", row_group_size=130)
    return folder / "table.parquet"


def parquet_folder(folder):
    place = folder / "parts"
    place.mkdir()
    for part in range(12):  # part.10 is after part.9, not after part.1
        start, end = part * ROWS // 12, (part + 1) * ROWS // 12
        pq.write_table(table(end - start, start), place / f"part.{part}.parquet")
    (place / "_SUCCESS").touch()
    (place / ".part.0.parquet.crc").touch()
    return place


def arrow_file(folder):
    feather.write_feather(table(), folder / "table.arrow", compression="uncompressed", chunksize=97)
    return folder / "table.arrow"


def arrow_folder(folder):
    (folder / "parts").mkdir()
    for part in range(4):
        name = folder / "parts" / f"{part}.feather"
        feather.write_feather(table(ROWS // 4, part * ROWS // 4), name, compression="uncompressed", chunksize=100)
    return folder / "parts"


def compressed_arrow(folder):
    feather.write_feather(table(), folder / "table.feather", compression="zstd", chunksize=97)
    return folder / "table.feather"


def arrow_stream(folder):
    with pa.OSFile(str(folder / "table.arrow"), "wb") as file, pa.ipc.new_stream(file, table().schema) as writer:
        writer.write_table(table(), max_chunksize=97)
    return folder / "table.arrow"


SOURCES = [parquet_file, parquet_folder, arrow_file, arrow_folder, compressed_arrow, arrow_stream]


@pytest.fixture(params=SOURCES, ids=lambda make: make.__name__)
def source(request, tmp_path):
    return request.param(tmp_path)


def test_an_item_has_a_tensor_for_each_column(source):
    data = fd.dataset(source)
    assert len(data) == ROWS
    assert data.columns == ["id", "x", "flag", "pair", "grid"]
    for index in [0, 96, 97, 130, 499, 999]:
        assert same(data[index], expected(index))
    assert same(data[-1], expected(999))
    assert [int(item["id"]) for item in data] == list(range(ROWS))


def test_rows_of_a_batch_are_in_the_order_of_its_indices(source):
    data = fd.dataset(source)
    indices = random.Random(0).sample(range(ROWS), 64)
    rows = data.__getitems__(indices)
    assert len(rows) == 64
    assert all(same(row, expected(index)) for row, index in zip(rows, indices, strict=True))
    assert same(rows[5], expected(indices[5]))
    assert [int(row["id"]) for row in rows[10:12]] == indices[10:12]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_makes_batches_of_columns(tmp_path, workers):
    loader = DataLoader(fd.dataset(parquet_file(tmp_path)), batch_size=128, num_workers=workers)
    batches = list(loader)
    assert [len(batch["id"]) for batch in batches] == [128] * 7 + [104]
    assert type(batches[0]) is dict
    assert torch.equal(torch.cat([batch["id"] for batch in batches]), torch.arange(ROWS))
    assert batches[0]["pair"].shape == (128, 2)
    assert batches[0]["flag"].dtype == torch.bool


def test_batches_equal_those_of_single_items(source):
    data = fd.dataset(source)
    [whole] = DataLoader(Subset(data, [3, 999, 500]), batch_size=3)
    [joined] = DataLoader(ConcatDataset([Subset(data, [3]), Subset(data, [999, 500])]), batch_size=3)
    assert same(whole, joined)
    [own] = DataLoader(Subset(data, [3, 999, 500]), batch_size=3, collate_fn=list)
    assert [same(item, expected(index)) for item, index in zip(own, [3, 999, 500], strict=True)] == [True] * 3


def test_columns_are_selected_in_the_given_order(source):
    assert list(fd.dataset(source, ["grid", "id"])[0]) == ["grid", "id"]
    assert list(fd.dataset(source, "id")[7]) == ["id"]


def test_folders_with_values_are_columns(tmp_path):
    for year in (2025, 2026):
        (tmp_path / "table" / f"year={year}" / "place=a%20b").mkdir(parents=True)
        pq.write_table(table(5), tmp_path / "table" / f"year={year}" / "place=a%20b" / "0.parquet")
    data = fd.dataset(tmp_path / "table", ["id", "year"])
    assert [(int(item["id"]), int(item["year"])) for item in data][4:6] == [(4, 2025), (0, 2026)]
    rows = fd.dataset(tmp_path / "table", ["place"], transform=dict)
    assert rows[9] == {"place": "a b"}
    # A single file has only its own columns, wherever it is.
    assert "year" not in fd.dataset(tmp_path / "table" / "year=2025" / "place=a%20b" / "0.parquet").columns


@pytest.mark.parametrize(
    "kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)
def test_numbers_keep_their_type(tmp_path, kind):
    values = np.arange(5).astype(kind)
    feather.write_feather(pa.table({"x": values}), tmp_path / "x.arrow", compression="uncompressed")
    item = fd.dataset(tmp_path / "x.arrow")[3]["x"]
    assert item.dtype == torch.from_numpy(values).dtype
    assert item.item() == 3


def test_nested_lists_and_tensors_have_their_shape(tmp_path):
    values = np.arange(48, dtype=np.float32).reshape(4, 3, 4)
    nested = pa.array(values.tolist(), pa.list_(pa.list_(pa.float32())))
    bits = pa.array((values[:, 0] % 2 == 0).tolist(), pa.list_(pa.bool_(), 4))
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    pq.write_table(pa.table({"nested": nested, "bits": bits, "tensors": tensors}), tmp_path / "x.parquet")
    rows = next(iter(DataLoader(fd.dataset(tmp_path / "x.parquet"), batch_size=3)))
    assert torch.equal(rows["nested"], torch.from_numpy(values[:3]))
    assert torch.equal(rows["tensors"], torch.from_numpy(values[:3]))
    assert torch.equal(rows["bits"], torch.from_numpy(values[:3, 0] % 2 == 0))


def test_slices_of_arrays_are_read_where_they_begin(tmp_path):
    feather.write_feather(table().slice(301, 50), tmp_path / "part.arrow", compression="uncompressed", chunksize=7)
    assert [same(item, expected(301 + index)) for index, item in enumerate(fd.dataset(tmp_path / "part.arrow"))] == (
        [True] * 50
    )


def mixed():
    return pa.table(
        {
            "id": [1, 2],
            "text": ["a", "b"],
            "time": pa.array([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]),
            "words": [["a"], ["b", "c"]],
            "sizes": [[1], [2, 3]],
            "maybe": [1.5, None],
            "kind": pa.array(["p", "q"]).dictionary_encode(),
        }
    )


@pytest.mark.parametrize("write", [pq.write_table, feather.write_feather])
def test_a_transform_gets_tensors_and_python_values(tmp_path, write):
    write(mixed(), tmp_path / ("x.parquet" if write is pq.write_table else "x.arrow"))
    data = fd.dataset(next(tmp_path.glob("x.*")), transform=lambda row: row)
    row = data[1]
    assert row.pop("id").dtype == torch.int64
    assert row == {
        "text": "b",
        "time": datetime(2026, 1, 2, tzinfo=UTC),
        "words": ["b", "c"],
        "sizes": [2, 3],
        "maybe": None,
        "kind": "q",
    }


def test_the_item_is_what_the_transform_returns(tmp_path):
    data = fd.dataset(parquet_file(tmp_path), ["pair", "id"], transform=lambda row: (row["pair"] * 2, row["id"]))
    x, y = next(iter(DataLoader(data, batch_size=4)))
    assert x.tolist() == [[0, 0], [2, -2], [4, -4], [6, -6]]
    assert y.tolist() == [0, 1, 2, 3]


def test_an_error_of_a_transform_names_the_row(tmp_path):
    data = fd.dataset(parquet_file(tmp_path), transform=lambda row: 1 / (17 - row["id"].item()))
    with pytest.raises(ZeroDivisionError) as raised:
        data.__getitems__([16, 17])
    assert raised.value.__notes__ == [f"fd.dataset: the transform raised this for row 17 of {data.source}."]


def double(row):
    return row["id"] * 2


def test_a_pickle_has_the_path_and_not_the_data(source):
    data = fd.dataset(source, transform=double)
    data[0]
    pickled = pickle.dumps(data)
    assert len(pickled) < 1000
    again = pickle.loads(pickled)
    assert len(again) == ROWS
    assert again[21] == 42


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_loader_processes_open_the_table_again(tmp_path, context):
    data = fd.dataset(parquet_file(tmp_path))
    loader = DataLoader(data, batch_size=250, num_workers=1, multiprocessing_context=context)
    assert torch.cat([batch["id"] for batch in loader]).tolist() == list(range(ROWS))


def test_a_table_that_has_changed_since_the_pickle_is_refused(tmp_path):
    path = parquet_file(tmp_path)
    pickled = pickle.dumps(fd.dataset(path))
    pq.write_table(table(7), path)
    with pytest.raises(UsageError, match=r"has 7 rows here, and had 1000 .* call fd\.dataset again"):
        pickle.loads(pickled)[0]


def test_relative_paths_and_paths_of_the_home_are_those_of_this_process(tmp_path, monkeypatch):
    parquet_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    data = fd.dataset("table.parquet")
    assert data.source == str(tmp_path / "table.parquet") == fd.dataset("~/table.parquet").source
    assert repr(data) == f"<data set of 1,000 rows from {data.source}: id, x, flag, pair, grid>"


def test_more_memory_is_not_taken_for_more_rows(tmp_path):
    data = fd.dataset(arrow_file(tmp_path))
    before = pa.total_allocated_bytes()
    for _ in DataLoader(data, batch_size=50):
        assert pa.total_allocated_bytes() - before < 10_000


def test_prepare_takes_it_and_data_sets_of_others(tmp_path):
    class Fake(Dataset):
        """A data set of Hugging Face: rows of a batch are read at once."""

        def __len__(self):
            return 10

        def __getitems__(self, indices):
            assert len(indices) > 1
            return [{"id": torch.tensor(index)} for index in indices]

    for data in (fd.dataset(arrow_file(tmp_path), ["id"]), Fake()):
        _, _, loader = fd.prepare(None, None, DataLoader(data, batch_size=5, shuffle=True))
        seen = torch.cat([batch["id"] for batch in loader])
        assert seen.sort().values.tolist() == list(range(len(data)))


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1])
def test_an_index_out_of_range(tmp_path, index):
    with pytest.raises(IndexError, match=f"has 1000 rows, and no row {index}"):
        fd.dataset(parquet_file(tmp_path))[index]


def refused(says, *arguments, **options):
    with pytest.raises(UsageError, match=says):
        fd.dataset(*arguments, **options)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (None, r"'text' is of the type string, which is no tensor\. Name the `columns`.*`transform`"),
        (["time"], "'time' is of the type timestamp"),
        (["words"], r"'words' is of the type list<.*string>"),
        (["sizes"], r"'sizes' has lists of different lengths: \[1\] in the first row, and \[2\] in row 1"),
        (["maybe"], r"'maybe' has no value in row 1\..*fillna or dropna"),
        (["kind"], "'kind' is of the type string"),
        (["ids"], r"no column 'ids'\. It has the columns id, text, .*Did you mean 'id'"),
    ],
)
def test_columns_that_are_no_tensors(tmp_path, columns, says):
    pq.write_table(mixed(), tmp_path / "x.parquet")
    refused(says, tmp_path / "x.parquet", columns)


def test_lists_whose_elements_are_missing_or_lists_that_are_empty(tmp_path):
    pq.write_table(
        pa.table(
            {"x": [[1, None], [2, 3]], "y": [[], []]}, pa.schema({"x": pa.list_(pa.int8()), "y": pa.list_(pa.int8())})
        ),
        tmp_path / "x.parquet",
    )
    feather.write_feather(pa.table({"z": pa.array([[], []], pa.list_(pa.int8(), 0))}), tmp_path / "z.arrow")
    refused("'z' has only empty lists", tmp_path / "z.arrow")
    refused("'x' has a missing value", tmp_path / "x.parquet", ["x"])
    refused("'y' has only empty lists", tmp_path / "x.parquet", ["y"])


def test_tensors_whose_dimensions_are_in_another_order(tmp_path):
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((3, 2, 4)).transpose(0, 2, 1))
    pq.write_table(pa.table({"x": tensors}), tmp_path / "x.parquet")
    refused("'x' has tensors whose dimensions are stored in another order", tmp_path / "x.parquet")


def test_lists_that_have_another_length_in_another_file(tmp_path):
    for part, length in enumerate([2, 2, 3]):
        feather.write_feather(
            pa.table({"x": [[0] * length] * 4}), tmp_path / f"{part}.arrow", compression="uncompressed"
        )
    refused(r"'x' has lists of different lengths: \[2\] in the first row, and \[3\] in row 8", tmp_path)


def test_nothing_is_copied_if_a_column_is_no_tensor(tmp_path, cache):
    pq.write_table(mixed(), tmp_path / "x.parquet")
    refused("no tensor", tmp_path / "x.parquet")
    assert not list(cache.glob("*.arrow"))


def test_no_such_path(tmp_path):
    refused(
        f"there is no file or folder {tmp_path}/nope.parquet on this machine.*%cluster put", tmp_path / "nope.parquet"
    )


@pytest.mark.parametrize("write", [pq.write_table, feather.write_feather])
def test_no_rows(tmp_path, write, cache):
    path = tmp_path / ("x.parquet" if write is pq.write_table else "x.arrow")
    write(table(0), path)
    refused(f"{path} has no rows", path)
    assert not list(cache.glob("*.arrow"))


def test_folders_without_a_table(tmp_path):
    refused(r"has no Parquet files", tmp_path)
    parquet_file(tmp_path)
    arrow_file(tmp_path)
    refused("has both Parquet and Arrow files", tmp_path)


def test_files_that_are_no_tables(tmp_path):
    for name in ("x.csv", "x.parquet", "x.arrow", "empty.arrow"):
        (tmp_path / name).write_text("" if name.startswith("empty") else "a,b\n1,2\n" * 10)
    refused(r"x\.csv is neither a Parquet file .*read it with Dask", tmp_path / "x.csv")
    refused(r"x\.parquet cannot be read: .*Write the file again", tmp_path / "x.parquet")
    refused(r"x\.arrow cannot be read: .*Write the file again", tmp_path / "x.arrow")
    refused(r"empty\.arrow cannot be read: .*Write the file again", tmp_path / "empty.arrow")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"x": [1.5], "y": [1]}, r"'x' is of the type double in .*1\.\w+, and of the type int64 in .*0\.\w+\."),
        ({"y": [1]}, r"'x' is missing in .*1\.\w+, and of the type int64 in .*0\.\w+\."),
        ({"x": [1], "y": [1], "z": [1]}, r"'z' is of the type int64 in .*1\.\w+, and missing in .*0\.\w+\."),
    ],
)
def test_parts_with_different_columns(tmp_path, kind, other, says):
    for part, values in enumerate([{"x": [1], "y": [1]}, other]):
        path = tmp_path / f"{part}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table(values), path)
        else:
            feather.write_feather(pa.table(values), path, compression="uncompressed")
    refused(f"the files have different columns: {says}", tmp_path)
    # Columns that are not read may differ.
    assert len(fd.dataset(tmp_path, ["y"])) == 2


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("missing", ["0", "2"])
def test_a_column_without_values_in_a_part_has_its_type_of_the_others(tmp_path, kind, missing):
    (tmp_path / "table").mkdir()
    for part in "012":
        texts = pa.nulls(2) if part == missing else pa.array([part, None])
        own = pa.table({"text": texts, "id": [1, 2]})
        if kind == "parquet":
            pq.write_table(own, tmp_path / "table" / f"{part}.parquet")
        else:
            feather.write_feather(own, tmp_path / "table" / f"{part}.arrow", compression="uncompressed")
    data = fd.dataset(tmp_path / "table", transform=lambda row: row["text"])
    assert list(data) == [None if part == missing or row else part for part in "012" for row in (0, 1)]
    refused("'text' is of the type (string|null), which is no tensor", tmp_path / "table")


def test_a_folder_that_links_to_itself_has_each_row_once(tmp_path):
    parquet_folder(tmp_path)
    (tmp_path / "parts" / "again").symlink_to(tmp_path / "parts")
    assert len(fd.dataset(tmp_path / "parts")) == ROWS


def test_names_in_any_language_and_in_no_language(tmp_path):
    folder = tmp_path / "données ñ 数据"
    folder.mkdir()
    pq.write_table(pa.table({"größe": [1, 2]}), folder / "část.parquet")
    assert fd.dataset(folder)[1]["größe"] == 2
    refused(r"/caf.udce9' cannot be read: .* surrogates not allowed", f"{tmp_path}/caf\udce9")


def test_sources_and_arguments_of_other_types(tmp_path):
    refused(r"is a DataFrame in memory; write it to a file, e\.g\. frame\.to_parquet", pd.DataFrame({"x": [1]}))
    refused("the source is of type int", 5)
    refused("1 is no name of a column", tmp_path, [1])
    refused("only a Dask data frame is written to a folder", tmp_path, folder=tmp_path / "out")
