"""Tests of batches: how records and tables become columns, and columns Arrow tables."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from farandole.batches.columns import BatchError, collate, count_rows, merged_columns, of_table, shown, to_table


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


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_a_column_of_floats_is_an_array_with_and_without_nulls(kind):
    pairs = pa.array([[1.0, 2.0], [3.0, None]], pa.list_(kind, 2))
    table = pa.table({"x": pa.array([1.0, None], kind), "pair": pairs})
    whole, holes = of_table(table.slice(0, 1)), of_table(table)
    for name, values in {"x": [1, np.nan], "pair": [[1, 2], [3, np.nan]]}.items():
        assert whole[name].dtype == holes[name].dtype == kind.to_pandas_dtype()
        assert np.array_equal(holes[name], values, equal_nan=True)


def test_a_column_of_integers_with_nulls_can_be_made_an_array_of_floats():
    for values in ([1, None], [1, 2]):
        column = of_table(pa.table({"n": pa.array(values, pa.int64())}))["n"]
        assert np.array_equal(np.asarray(column, float), np.array(values, float), equal_nan=True)


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


BOXES = pa.list_(pa.list_(pa.float32()))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([np.ones((1, 2), "float32"), np.ones((3, 2), "float32")], BOXES),
        ([torch.ones((1, 2)), torch.zeros((0, 2))], BOXES),
        ([torch.zeros((0, 2))], BOXES),
        ([np.zeros((0, 2)), np.ones((1, 2), "float32"), None, []], BOXES),
        ([np.ones((1, 2), ">f4")], BOXES),
        ([torch.ones((1, 2), dtype=torch.bfloat16)], BOXES),
        ([np.ones(2, "uint8"), np.zeros(0, "uint8")], pa.list_(pa.uint8())),
        ([np.array([True]), None], pa.list_(pa.bool_())),
        ([np.array(["a"]), np.array([])], pa.list_(pa.string())),
        ([np.array(["a"], dtype=object)], pa.list_(pa.string())),
        ([np.ones(1, "float32"), [0.5]], pa.list_(pa.float64())),
        ([np.float32(1), 0.5], pa.float64()),
    ],
)
def test_arrays_in_lists_keep_their_type(values, kind):
    column = to_table({"a": values})["a"]
    assert column.type == kind
    assert column.to_pylist() == [one.tolist() if hasattr(one, "tolist") else one for one in values]


def test_tensors_of_a_type_that_numpy_lacks_are_stored():
    assert to_table({"a": torch.ones(2, 1, dtype=torch.bfloat16)})["a"].to_pylist() == [[1.0], [1.0]]


@pytest.mark.parametrize(
    ("kind", "other", "common"),
    [
        (pa.null(), pa.int8(), pa.int8()),
        (pa.list_(pa.null()), BOXES, BOXES),
        (pa.list_(pa.list_(pa.null())), BOXES, BOXES),
        (
            pa.struct({"a": pa.null(), "b": pa.string()}),
            pa.struct({"a": BOXES, "b": pa.null()}),
            pa.struct({"a": BOXES, "b": pa.string()}),
        ),
    ],
)
def test_columns_without_any_value_fit_all_types(kind, other, common):
    assert merged_columns({"a": kind}, {"a": other}) == merged_columns({"a": other}, {"a": kind}) == {"a": common}


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (pa.int8(), pa.int64()),
        (BOXES, pa.list_(pa.list_(pa.float64()))),
        (pa.list_(pa.float32(), 3), pa.list_(pa.float32(), 4)),
        (pa.list_(pa.null()), pa.list_(pa.float32(), 4)),
        (pa.struct({"a": pa.null()}), pa.struct({"b": pa.null()})),
    ],
)
def test_other_types_and_columns_do_not_fit(kind, other):
    assert merged_columns({"a": kind}, {"a": other}) is merged_columns({"a": other}, {"a": kind}) is None
    assert merged_columns({"a": kind}, {"b": kind}) is None


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
