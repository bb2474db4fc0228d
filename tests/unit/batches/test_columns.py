"""Tests of batches: how records and tables become columns, and columns Arrow tables."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from farandole.batches.columns import BatchError, collate, count_rows, of_table, shown, to_table


def test_numbers_arrays_and_tensors_are_stacked_and_others_are_lists():
    rows = [
        {"n": n, "x": float(n), "image": np.full((2, 3), n), "tensor": torch.full((4,), n), "text": str(n), "raw": b"a"}
        for n in range(3)
    ]
    batch = collate(rows)
    assert batch["n"].dtype == np.int64
    assert batch["x"].tolist() == [0.0, 1.0, 2.0]
    assert batch["image"].shape == (3, 2, 3)
    assert torch.equal(batch["tensor"][:, 0], torch.arange(3))
    assert (batch["text"], batch["raw"]) == (["0", "1", "2"], [b"a"] * 3)


@pytest.mark.parametrize(
    ("records", "columns"),
    [
        ([(1, "a"), (2, "b")], {"0": [1, 2], "1": ["a", "b"]}),
        ([3, 4], {"item": [3, 4]}),
        ([[1], [2]], {"item": [[1], [2]]}),
    ],
)
def test_records_that_are_no_dicts_have_numbered_columns_or_one(records, columns):
    assert {name: list(values) for name, values in collate(records).items()} == columns


@pytest.mark.parametrize(
    "values", [[1, None], [2**70, 1], [np.zeros(2), np.zeros(3)], [torch.zeros(2), torch.zeros(3)]]
)
def test_values_that_do_not_fit_together_stay_a_list(values):
    assert isinstance(collate([{"a": value} for value in values])["a"], list)


def test_records_with_different_columns_are_no_batch():
    with pytest.raises(BatchError, match="has the columns 'b' after records with 'a'"):
        collate([{"a": 1}, {"b": 1}])


def test_a_table_becomes_arrays_that_can_be_written_to():
    image = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(pa.array(range(12), pa.int8()), 3), 2)
    table = pa.table({"n": [1, 2], "image": image, "holes": [1, None], "text": ["a", "b"], "lists": [[1], [2, 3]]})
    batch = of_table(table.slice(1))
    assert batch["n"].flags.writeable
    assert batch["image"].tolist() == [[[6, 7, 8], [9, 10, 11]]]
    assert batch["image"].dtype == np.int8
    assert (batch["holes"], batch["text"], batch["lists"]) == ([None], ["b"], [[2, 3]])


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (None, "returned nothing"),
        ({}, "returned an empty value"),
        ([1], "returned a value of type list"),
        ({"a": "text"}, "a value of type str as the column 'a'"),
        ({"a": 3}, "a value of type int as the column 'a'"),
        ({"a": np.float64(1)}, "a value of type float64 as the column 'a'"),
        ({"a": torch.tensor(1)}, "a value of type Tensor as the column 'a'"),
    ],
)
def test_what_is_no_batch_is_described(batch, said):
    with pytest.raises(BatchError, match=said):
        count_rows(batch)


def test_rows_are_counted_by_column():
    batch = {"a": [1, 2], "b": np.zeros((3, 2)), "c": torch.zeros(4), "d": (1,)}
    assert list(count_rows(batch).values()) == [2, 3, 4, 1]


def test_arrays_with_several_dimensions_are_lists_of_fixed_size():
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    table = to_table(
        {"array": values, "tensor": torch.from_numpy(values.copy()).requires_grad_(), "empty": values[:, :0]}
    )
    assert str(table.schema.field("array").type).startswith("fixed_size_list<item: fixed_size_list<item: float>[3]>[2]")
    assert table["array"].to_pylist() == table["tensor"].to_pylist() == values.tolist()
    assert table["empty"].to_pylist() == [[], []]
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    assert pq.read_table(pa.BufferReader(sink.getvalue())) == table
    assert np.array_equal(of_table(table)["array"], values)


def test_a_list_of_arrays_has_the_same_type_whether_or_not_their_shapes_are_equal():
    equal, different = [np.zeros((1, 2)), np.ones((1, 2))], [np.zeros((1, 2)), np.ones((3, 2))]
    assert to_table({"boxes": equal}).schema == to_table({"boxes": different}).schema


@pytest.mark.parametrize("values", [[object()], [1, "a"], np.array([1 + 2j])])
def test_a_column_that_parquet_has_no_type_for_is_named(values):
    with pytest.raises(BatchError, match="returned the column 'a', which Parquet cannot store"):
        to_table({"a": values})


def test_records_in_messages_are_short():
    text = shown(
        {"path": "a" * 500, "bytes": b"x" * 10_000, "image": np.zeros((3, 2)), "n": np.int64(3), "l": [1] * 50}
    )
    assert len(text) < 300
    assert "'bytes': <10000 bytes>, 'image': <ndarray (3, 2)>, 'n': 3" in text
