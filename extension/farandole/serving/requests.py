"""Checks the inputs of requests, and converts them to arrays.

This module does not import KServe, so that its tests run in the environment of all other tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from types import NoneType
from typing import Any, Protocol

import numpy as np

from farandole.models.model import NUMPY_TYPES, ModelInfo, TensorInfo

ACCEPTED: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""The types of values that a datatype accepts, by its kind in NumPy. NumPy itself would convert other values."""
JSON_NAMES = {
    bool: "booleans",
    dict: "objects",
    float: "decimal numbers",
    int: "integers",
    list: "lists beside values",
    NoneType: "null",
    str: "strings",
}


class InvalidInputError(ValueError):
    """Raised when an endpoint cannot answer a request as it is. The answer has the status 400."""


class Input(Protocol):
    """An input of a request, as KServe's ``InferInput``."""

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def datatype(self) -> str:
        """Return the datatype, in the terms of the protocol."""

    @property
    def shape(self) -> list[int]:
        """Return the shape."""

    @property
    def data(self) -> list[Any]:
        """Return the values, in lists that may be nested."""


def arrays_of(inputs: Sequence[Input], info: ModelInfo) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of a request by name.

    Raises:
        InvalidInputError: an input is missing, unknown or repeated, has another datatype or shape than the version
            expects, or has a value that the datatype does not have or that is not finite. The message says what is
            expected.
    """
    given = {one.name: one for one in inputs}
    expected = {one.name: one for one in info.inputs}
    for name in given.keys() - expected.keys():
        raise InvalidInputError(f"there is no input {name!r}; {_expected(info.inputs)}")
    for name in expected.keys() - given.keys():
        raise InvalidInputError(f"the input {name!r} is missing; {_expected(info.inputs)}")
    for name, count in Counter(one.name for one in inputs).items():
        if count > 1:
            raise InvalidInputError(f"the input {name!r} is there {count} times; {_expected(info.inputs)}")
    found = {name: _array(one, given[name]) for name, one in expected.items()}
    rows = {len(found[one.name]) for one in info.inputs if one.shape[:1] == (-1,)}
    if len(rows) > 1:
        raise InvalidInputError(f"the inputs have different numbers of rows: {', '.join(map(str, sorted(rows)))}")
    if rows == {0}:
        raise InvalidInputError(f"the inputs have no rows; {_expected(info.inputs)}")
    return found


def _array(expected: TensorInfo, given: Input) -> np.ndarray[Any, Any]:
    if given.datatype != expected.datatype:
        raise InvalidInputError(f"the input {given.name!r} has the datatype {given.datatype}; {_expected([expected])}")
    if not _has_shape(given.shape, expected.shape):
        raise InvalidInputError(f"the input {given.name!r} has the shape {list(given.shape)}; {_expected([expected])}")
    dtype = np.dtype(NUMPY_TYPES[expected.datatype])
    if others := _types(given.data) - ACCEPTED[dtype.kind]:
        contained = ", ".join(sorted(JSON_NAMES[one] for one in others))
        raise InvalidInputError(f"the data of the input {given.name!r} contain {contained}; {_expected([expected])}")
    try:
        with np.errstate(over="ignore"):
            found = np.asarray(given.data, dtype=dtype).reshape(given.shape)
    except (ValueError, OverflowError) as exc:
        raise InvalidInputError(f"the data of the input {given.name!r} do not fit {expected}: {exc}") from exc
    if dtype.kind == "f" and not np.isfinite(found).all():
        raise InvalidInputError(
            f"the input {given.name!r} has values that are not finite as {expected.datatype}, such as NaN"
        )
    return found


def _types(data: list[Any]) -> set[type]:
    """Return the types of the values in lists that may be nested."""
    while (found := set(map(type, data))) == {list}:
        data = list(chain.from_iterable(data))
    return found


def _has_shape(given: Sequence[int], expected: Sequence[int]) -> bool:
    return len(given) == len(expected) and all(
        size >= 0 and wanted in {-1, size} for size, wanted in zip(given, expected, strict=True)
    )


def _expected(tensors: Sequence[TensorInfo]) -> str:
    return f"expected {', '.join(map(str, tensors))}"
