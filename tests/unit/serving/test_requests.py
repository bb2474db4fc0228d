"""Inputs of requests are refused unless they fit the version, with what it expects."""

from types import SimpleNamespace

import numpy as np
import pytest
from farandole.models.model import TensorInfo
from farandole.serving.requests import InvalidInputError, arrays_of

X = TensorInfo(name="x", datatype="FP32", shape=(-1, 2))
Y = TensorInfo(name="y", datatype="INT64", shape=(-1,))


def given(data, datatype="FP32", shape=(1, 2), name="x"):
    return SimpleNamespace(name=name, datatype=datatype, shape=list(shape), data=data)


def arrays(inputs, *expected):
    return arrays_of(inputs, SimpleNamespace(inputs=expected))


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("INT8", [-128, 127]),
        ("INT64", [-(2**63), 2**63 - 1]),
        ("FP16", [0.5, 1]),
        ("FP32", [0.5, 2**40]),
        ("FP64", [-0.1, 1]),
    ],
)
def test_the_values_of_each_datatype_are_accepted(datatype, data):
    tensor = TensorInfo(name="x", datatype=datatype, shape=(-1, 2))
    found = arrays([given(data, datatype)], tensor)["x"]
    assert found.tolist() == [data]
    assert found.shape == (1, 2)


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]]])
def test_data_may_be_nested_or_flat(data):
    assert arrays([given(data, shape=(2, 2))], X)["x"].tolist() == [[1, 2], [3, 4]]


def test_a_tensor_without_dimensions_has_one_value():
    assert arrays([given([2.5], shape=())], TensorInfo(name="x", datatype="FP32", shape=()))["x"] == np.float32(2.5)


@pytest.mark.parametrize(
    ("datatype", "data", "contained"),
    [
        ("INT64", [1.7, 2], "decimal numbers"),
        ("INT64", [1.0, 2.0], "decimal numbers"),
        ("INT64", [True, 2], "booleans"),
        ("INT64", ["1", 2], "strings"),
        ("FP32", ["1.5", 2.0], "strings"),
        ("FP32", [[0.5, None]], "null"),
        ("FP32", [True, 0.5], "booleans"),
        ("BOOL", [2, 0.1], "decimal numbers, integers"),
        ("BOOL", [1, 0], "integers"),
        ("FP32", [{"a": 1}, 0.5], "objects"),
        ("FP32", [[0.5], 1.0], "lists beside values"),
    ],
)
def test_values_of_another_kind_are_refused(datatype, data, contained):
    tensor = TensorInfo(name="x", datatype=datatype, shape=(-1, 2))
    with pytest.raises(InvalidInputError) as caught:
        arrays([given(data, datatype)], tensor)
    assert str(caught.value) == f"the data of the input 'x' contain {contained}; expected x: {datatype} [-1, 2]"


@pytest.mark.parametrize(
    ("datatype", "data"),
    [("UINT8", [256, 0]), ("UINT8", [-1, 0]), ("INT64", [2**63, 0]), ("FP64", [10**400, 0])],
)
def test_numbers_out_of_range_are_refused(datatype, data):
    tensor = TensorInfo(name="x", datatype=datatype, shape=(-1, 2))
    with pytest.raises(InvalidInputError, match=r"the data of the input 'x' do not fit x: \w+ \[-1, 2\]: "):
        arrays([given(data, datatype)], tensor)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [("FP32", [float("nan"), 1.0]), ("FP64", [1, float("-inf")]), ("FP32", [1e39, 1.0]), ("FP16", [70_000, 1])],
)
def test_values_that_are_not_finite_are_refused(datatype, data):
    tensor = TensorInfo(name="x", datatype=datatype, shape=(-1, 2))
    with pytest.raises(InvalidInputError, match=f"has values that are not finite as {datatype}, such as NaN"):
        arrays([given(data, datatype)], tensor)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], r"the input 'x' is missing; expected x: FP32 \[-1, 2\]"),
        ([given([1], "INT64", (1,), "z")], r"there is no input 'z'; expected x: FP32 \[-1, 2\]"),
        ([given([1.0, 2.0]), given([3.0, 4.0])], r"the input 'x' is there 2 times; expected x: FP32 \[-1, 2\]"),
        ([given([1.0, 2.0], "FP64")], r"the input 'x' has the datatype FP64; expected x: FP32 \[-1, 2\]"),
        ([given([1.0] * 3, shape=(1, 3))], r"the input 'x' has the shape \[1, 3\]; expected x: FP32 \[-1, 2\]"),
        ([given([1.0] * 2, shape=(2,))], r"the input 'x' has the shape \[2\]; expected x: FP32 \[-1, 2\]"),
        ([given([1.0] * 2, shape=(-1, 2))], r"the input 'x' has the shape \[-1, 2\]; expected x: FP32 \[-1, 2\]"),
        ([given([1.0] * 3)], r"the data of the input 'x' do not fit x: FP32 \[-1, 2\]: cannot reshape"),
        ([given([[1.0], [2.0, 3.0]])], r"the data of the input 'x' do not fit x: FP32 \[-1, 2\]: "),
        ([given([1.0], shape=(10**30, 2))], r"the data of the input 'x' do not fit x: FP32 \[-1, 2\]: "),
        ([given([], shape=(0, 2))], r"the inputs have no rows; expected x: FP32 \[-1, 2\]"),
    ],
)
def test_other_inputs_are_refused_with_what_is_expected(inputs, message):
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        arrays(inputs, X)


def test_inputs_with_different_numbers_of_rows_are_refused():
    with pytest.raises(InvalidInputError, match=r"^the inputs have different numbers of rows: 1, 2$"):
        arrays([given([1.0, 2.0]), given([1, 2], "INT64", (2,), "y")], X, Y)
