"""The columns of a mapped table, from which rows are taken as arrays of numbers or as Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from farandole.datasets.mapped import MappedTable, Numbers

Shape = tuple[int, ...]


class NoTensorError(ValueError):
    """Raised when a column cannot be a tensor. The message has the reason, without the name of the column."""


class NumberColumn:
    """A column of numbers, or of lists of numbers of the same length.

    A row has the same number of bytes in all record batches. It is therefore found in the file without Arrow: from the
    start of its record batch, and its place therein. Many rows take one operation of NumPy.

    Raises NoTensorError if the column is another one.
    """

    def __init__(self, table: MappedTable, name: str) -> None:
        layouts = [_layout_of(table, number, name) for number in range(len(table.batches))]
        values, _, self._shape = layouts[0]
        for number, (_, _, shape) in enumerate(layouts):
            if shape != self._shape:
                raise NoTensorError(_lengths(self._shape, shape, table.start(number)))
        self._is_bool = pa.types.is_boolean(values.type)
        self._dtype = np.dtype(np.uint8 if self._is_bool else values.type.to_pandas_dtype())
        self._width = int(np.prod(self._shape))
        self._file_of = np.array(table.file_of)
        self._flat = [_flat(file, self._dtype) for file in table.files]
        files = [table.files[number] for number in table.file_of]
        self._bases = np.array([self._base(*one[:2], file) for one, file in zip(layouts, files, strict=True)])

    def take(self, which: Numbers, local: Numbers) -> npt.NDArray[Any]:
        """Return the values of rows, which are given by their record batches and their places in them."""
        first = self._bases[which] + local * self._width
        if len(self._flat) == 1:
            return self._at(self._flat[0], first)
        files = self._file_of[which]
        taken = np.empty((len(which), *self._shape), np.bool_ if self._is_bool else self._dtype)
        for file in np.unique(files):
            taken[files == file] = self._at(self._flat[file], first[files == file])
        return taken

    def _at(self, flat: npt.NDArray[Any], first: Numbers) -> npt.NDArray[Any]:
        """Return the rows that begin at these numbers of a file."""
        if self._is_bool:
            bits = first[:, None] + np.arange(self._width)
            rows: npt.NDArray[Any] = (flat[bits >> 3] >> (bits & 7) & 1).astype(np.bool_)
        else:
            rows = flat[first] if self._width == 1 else sliding_window_view(flat, self._width)[first]
        return rows.reshape(len(first), *self._shape)

    def _base(self, values: pa.Array, start: int, file: pa.Buffer) -> int:
        """Return where in the file the numbers of a record batch begin, in numbers of this type or in bits."""
        place = int(values.buffers()[1].address) - int(file.address)
        return (place * 8 if self._is_bool else place // self._dtype.itemsize) + start


class ValueColumn:
    """A column of any type. Its rows are Python values, and None if they are missing."""

    def __init__(self, table: MappedTable, name: str) -> None:
        self._arrays = [batch.column(name) for batch in table.batches]

    def take(self, which: Numbers, local: Numbers) -> list[Any]:
        """Return the values of rows, which are given by their record batches and their places in them."""
        # `Table.take` would first join the record batches of all rows of the table.
        return [self._arrays[batch][row].as_py() for batch, row in zip(which.tolist(), local.tolist(), strict=True)]


def check_type(kind: pa.DataType) -> None:
    """Raise NoTensorError if values of this type cannot be tensors."""
    inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    while _is_list(inner):
        inner = inner.value_type
    if not (pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner)):
        raise NoTensorError(f"is of the type {kind}, which is no tensor")


def _layout_of(table: MappedTable, number: int, name: str) -> tuple[pa.Array, int, Shape]:
    """Return the numbers of a record batch, the place of the first one, and the shape of a row."""
    array = table.batches[number].column(name)
    check_type(array.type)
    return _layout(array, table.start(number))


def _layout(array: pa.Array, row: int) -> tuple[pa.Array, int, Shape]:
    """Return the layout of an array, of which the first row has a number in the table."""
    if array.null_count:
        missing = pc.index(array.is_null(), True).as_py()
        raise NoTensorError(f"has no value in row {row + missing}")
    if isinstance(array.type, pa.FixedShapeTensorType):
        if array.type.permutation not in (None, sorted(array.type.permutation or ())):
            raise NoTensorError("has tensors whose dimensions are stored in another order")
        values, start, _ = _layout(array.storage, row)
        return values, start, tuple(array.type.shape)
    if isinstance(array, pa.ExtensionArray):
        return _layout(array.storage, row)
    if not _is_list(array.type):
        return array, array.offset, ()
    return _list_layout(array, row)


def _list_layout(array: pa.Array, row: int) -> tuple[pa.Array, int, Shape]:
    length, first = _length(array, row)
    inside = array.values.slice(first, len(array) * length)
    try:
        values, start, shape = _layout(inside, 0)
    except NoTensorError as exc:
        raise NoTensorError(f"has a missing value, or lists of different lengths, in lists from row {row} on") from exc
    return values, start, (length, *shape)


def _length(array: pa.Array, row: int) -> tuple[int, int]:
    """Return the length of the lists in an array, and where the first one begins."""
    if pa.types.is_fixed_size_list(array.type):
        length = array.type.list_size
        return _not_empty(length), array.offset * length
    offsets = array.offsets.to_numpy()
    lengths = np.diff(offsets)
    _not_empty(int(lengths.max()))
    if len(other := np.flatnonzero(lengths != lengths[0])):
        raise NoTensorError(_lengths((int(lengths[0]),), (int(lengths[other[0]]),), row + int(other[0])))
    return int(lengths[0]), int(offsets[0])


def _not_empty(length: int) -> int:
    if not length:
        raise NoTensorError("has only empty lists")
    return length


def _lengths(first: Shape, other: Shape, row: int) -> str:
    return f"has lists of different lengths: {list(first)} in the first row, and {list(other)} in row {row}"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _flat(file: pa.Buffer, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(file, dtype, count=file.size // dtype.itemsize)
