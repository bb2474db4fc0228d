"""Batches, which are dicts of columns: made of records and of Arrow tables, counted, and stored as Arrow tables."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Batch: TypeAlias = dict[str, Any]
"""A list, an array or a tensor for each column. All have the same number of rows."""

ITEM = "item"
"""The column of records that are neither dicts nor tuples."""
NUMERIC = "biuf"
"""The kinds of NumPy's types of booleans, integers and floating-point numbers."""
MOST_TEXT = 500


class BatchError(ValueError):
    """Raised if something is no batch. The message is the second half of a sentence, such as "returned no dict"."""


def collate(records: Sequence[Any]) -> Batch:
    """Return the batch of some records. Raises BatchError if they have different columns."""
    rows = [_fields(record) for record in records]
    names = dict.fromkeys(rows[0])
    for row in rows:
        if row.keys() != names.keys():
            raise BatchError(f"has the columns {_list(row)} after records with {_list(names)}")
    return {name: _stacked([row[name] for row in rows]) for name in names}


def _fields(record: Any) -> Mapping[str, Any]:
    if isinstance(record, Mapping):
        return {str(name): value for name, value in record.items()}
    if isinstance(record, tuple):
        return {str(place): value for place, value in enumerate(record)}
    return {ITEM: record}


def _stacked(values: list[Any]) -> Any:
    """Return numbers, and arrays and tensors of equal shape and type, as one array or tensor, and others as a list."""
    first = values[0]
    if all(isinstance(value, int | float | np.number | np.bool_) for value in values):
        array = np.asarray(values)
        # Integers of more than 64 bits have no NumPy type.
        return values if array.dtype == object else array
    if _is_tensor(first):
        alike = all(_is_tensor(one) and (one.shape, one.dtype) == (first.shape, first.dtype) for one in values)
        return sys.modules["torch"].stack(values) if alike else values
    if isinstance(first, np.ndarray):
        alike = all(isinstance(one, np.ndarray) and _form(one) == _form(first) for one in values)
        return np.stack(values) if alike else values
    return values


def _form(array: np.ndarray[Any, Any]) -> tuple[object, ...]:
    return array.shape, array.dtype


def _is_tensor(value: Any) -> bool:
    # A tensor exists only in a process that has imported torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def of_columns(columns: Mapping[str, Any]) -> Batch:
    """Return the batch of columns, which are tensors, or lists of their values."""
    return {name: values if _is_tensor(values) else _stacked(list(values)) for name, values in columns.items()}


def of_table(table: pa.Table) -> Batch:
    """Return an Arrow table as a batch.

    Columns of numbers, and of lists of fixed size of them, become arrays. In those of floating-point numbers, nulls
    become NaN. No integer stands for a null, so columns of integers with nulls become lists.
    """
    return {
        name: _of_column(column.combine_chunks())
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _of_column(column: pa.Array) -> Any:
    shape, values = [len(column)], column
    while pa.types.is_fixed_size_list(values.type) and not values.null_count:
        shape.append(values.type.list_size)
        values = values.flatten()
    kind = values.type
    is_complete = (pa.types.is_integer(kind) or pa.types.is_boolean(kind)) and not values.null_count
    if not is_complete and not pa.types.is_floating(kind):
        return column.to_pylist()
    # The copy can be written to, which torch asks of arrays.
    return np.array(values.to_numpy(zero_copy_only=False)).reshape(shape)


def count_rows(batch: Any) -> dict[str, int]:
    """Return the number of rows of each column. Raises BatchError if something is not a dict of columns."""
    if not isinstance(batch, dict) or not batch:
        raise BatchError(f"returned {_kind(batch)}, and must return a dict with a list or an array for each column")
    return {str(name): _rows(str(name), values) for name, values in batch.items()}


def _rows(name: str, values: Any) -> int:
    shape = getattr(values, "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    if shape is not None or isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise BatchError(f"returned {_kind(values)} as the column {name!r}, and must return a list or an array")
    return len(values)


def to_table(batch: Batch) -> pa.Table:
    """Return a batch as an Arrow table. Raises BatchError if Parquet has no type for a column."""
    return pa.table({str(name): _array(str(name), values) for name, values in batch.items()})


def _array(name: str, values: Any) -> pa.Array:
    try:
        plain = [_plain(one) for one in values] if isinstance(values, list | tuple) else _plain(values)
        if isinstance(plain, list):
            return _listed(plain)
        return _nested(plain) if isinstance(plain, np.ndarray) else pa.array(plain)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
        raise BatchError(
            f"returned the column {name!r}, which Parquet cannot store ({exc}). Return numbers, texts, bytes, lists of "
            "these, or arrays"
        ) from exc


def _plain(value: Any) -> Any:
    """Return a tensor as an array, and other values as they are."""
    if not _is_tensor(value):
        return value
    tensor = value.detach().cpu()
    # NumPy lacks this type.
    is_brain_float = tensor.dtype == sys.modules["torch"].bfloat16
    return (tensor.float() if is_brain_float else tensor).numpy()


def _listed(values: list[Any]) -> pa.Array:
    """Return arrays in a list as lists, because their shapes can differ."""
    kind = _type_of(values)
    return pa.array([one.tolist() if isinstance(one, np.ndarray | np.generic) else one for one in values], kind)


def _type_of(values: list[Any]) -> pa.DataType | None:
    """Return the type of numeric arrays in a list, or None if Arrow finds the type by the values.

    Empty arrays of NumPy's default type do not count, because ``np.zeros((0, 4))`` may stand for no boxes of any type.
    """
    found = [one for one in values if one is not None and not (isinstance(one, list | tuple) and not one)]
    if not all(isinstance(one, np.ndarray) and one.ndim for one in found):
        return None
    forms = {(one.ndim, one.dtype.newbyteorder("=")) for one in found if one.size or one.dtype != np.float64}
    if len(forms) != 1:
        return None
    [(dimensions, dtype)] = forms
    return _list_type(dtype, dimensions) if dtype.kind in NUMERIC else None


def _list_type(dtype: np.dtype[Any], dimensions: int) -> pa.DataType:
    kind = pa.from_numpy_dtype(dtype)
    for _ in range(dimensions):
        kind = pa.list_(kind)
    return kind


def _nested(array: np.ndarray[Any, Any]) -> pa.Array:
    """Return an array with several dimensions as lists of fixed size, or as lists if they are empty."""
    if array.ndim == 1:
        return pa.array(array)
    if not array.size:
        # Arrow does not read lists of the fixed size 0 from Parquet.
        return pa.array(array.tolist(), _list_type(array.dtype, array.ndim - 1))
    found = pa.array(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[1:]):
        found = pa.FixedSizeListArray.from_arrays(found, size)
    return found


def merged_columns(known: Mapping[str, pa.DataType], other: Mapping[str, pa.DataType]) -> dict[str, pa.DataType] | None:
    """Return the types of the columns of two parts, or None if they have different columns or types.

    The type null of values that are all missing fits each type, also in lists and structs: ``list<null>``, the type of
    empty lists, fits ``list<double>``.
    """
    if known.keys() != other.keys():
        return None
    found = {name: _merged(kind, other[name]) for name, kind in known.items()}
    return None if None in found.values() else found


def _merged(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if kind == other or pa.types.is_null(other):
        return kind
    if pa.types.is_null(kind):
        return other
    if pa.types.is_list(kind) and pa.types.is_list(other):
        item = _merged(kind.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        fields = merged_columns(_fields_of(kind), _fields_of(other))
        return None if fields is None else pa.struct(fields)
    return None


def _fields_of(struct: pa.StructType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in struct}


def shown(value: Any) -> str:
    """Return a short text for a value of a record in a message."""
    if isinstance(value, Mapping):
        return shortened("{" + ", ".join(f"{name!r}: {shown(one)}" for name, one in value.items()) + "}")
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if getattr(value, "ndim", 0) and hasattr(value, "shape"):
        return f"<{type(value).__name__} {tuple(value.shape)}>"
    return _SHORT.repr(value.item() if isinstance(value, np.generic) else value)


def shortened(text: str) -> str:
    """Return a text of a record or an error so short that many of them can be stored."""
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, names))


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}" if value else "an empty value"
