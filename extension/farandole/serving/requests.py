"""Checks the inputs of requests, and converts them to arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from kserve import InferInput, InferRequest
from kserve.errors import InvalidInput

from farandole.models.model import ModelInfo, TensorInfo
from farandole.serving.runtimes import NUMPY_TYPES


def arrays_of(request: InferRequest, info: ModelInfo) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of a request by name.

    Raises:
        InvalidInput: an input is missing, unknown, or has another type or shape than the version expects, or a value
            that is not finite. The message says what is expected.
    """
    given = {one.name: one for one in request.inputs}
    expected = {one.name: one for one in info.inputs}
    for name in given.keys() - expected.keys():
        raise InvalidInput(f"there is no input {name!r}; {_expected(info.inputs)}")
    for name in expected.keys() - given.keys():
        raise InvalidInput(f"the input {name!r} is missing; {_expected(info.inputs)}")
    found = {name: _array(one, given[name]) for name, one in expected.items()}
    rows = {len(found[one.name]) for one in info.inputs if one.shape[:1] == (-1,)}
    if len(rows) > 1:
        raise InvalidInput(f"the inputs have different numbers of rows: {', '.join(map(str, sorted(rows)))}")
    if rows == {0}:
        raise InvalidInput(f"the inputs have no rows; {_expected(info.inputs)}")
    return found


def _array(expected: TensorInfo, given: InferInput) -> np.ndarray[Any, Any]:
    if given.datatype != expected.datatype:
        raise InvalidInput(f"the input {given.name!r} has the datatype {given.datatype}; {_expected([expected])}")
    if not _has_shape(given.shape, expected.shape):
        raise InvalidInput(f"the input {given.name!r} has the shape {list(given.shape)}; {_expected([expected])}")
    try:
        found = np.asarray(given.data, dtype=NUMPY_TYPES[expected.datatype]).reshape(given.shape)
    except (ValueError, TypeError, OverflowError) as exc:
        raise InvalidInput(f"the data of the input {given.name!r} do not match its shape and datatype: {exc}") from exc
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise InvalidInput(f"the input {given.name!r} has values that are not finite, such as NaN")
    return found


def _has_shape(given: Sequence[int], expected: Sequence[int]) -> bool:
    return len(given) == len(expected) and all(
        size >= 0 and wanted in {-1, size} for size, wanted in zip(given, expected, strict=True)
    )


def _expected(tensors: Sequence[TensorInfo]) -> str:
    return f"expected {', '.join(map(str, tensors))}"
