"""A table as a data set of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from farandole.datasets.cache import copy_of
from farandole.datasets.columns import NoTensorError, NumberColumn, ValueColumn, check_type
from farandole.datasets.mapped import MappedTable, Numbers, is_mappable
from farandole.datasets.places import absolute
from farandole.datasets.schemas import check_names
from farandole.datasets.sources import Source, find
from farandole.exceptions import UsageError

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from farandole.datasets.rows import Rows

    Base = Dataset[Any]
else:
    # The driver makes data sets, too, and does not import torch. A DataLoader needs no base class.
    Base = object


class Reader(Protocol):
    """A column from which rows are taken."""

    def take(self, which: Numbers, local: Numbers) -> Any:
        """Return the values of rows: an array, or a list of values of any type."""


class TableDataset(Base):
    """A map-style data set with the rows of a table. `farandole.dataset` makes it.

    - It has ``len`` and an index. A DataLoader reads all rows of a batch at once.
    - Its pickle has the path of the table, which is opened again in the process that loads the pickle.

    Attributes:
        source: the absolute path or the URL of the table.
        columns: the names of the columns.
    """

    def __init__(
        self,
        source: str,
        columns: Sequence[str],
        *,
        transform: Callable[[dict[str, Any]], Any] | None,
        images: Sequence[str],
    ) -> None:
        self.source = absolute(source)
        self._wanted = list(columns)
        self._transform = transform
        self._images = list(images)
        self._opened: _OpenTable | None = None
        table = self._open()
        self.columns = list(table.readers)
        self._rows = table.rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the items of many rows, which takes less time than one after the other. A DataLoader calls this."""
        rows = self._open().take(indices)
        if self._transform is None:
            return rows
        return [self._transformed(row, index) for row, index in zip(rows, indices, strict=True)]

    def __repr__(self) -> str:
        return f"<data set of {self._rows:,} rows from {self.source}: {', '.join(self.columns)}>"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def _transformed(self, row: dict[str, Any], index: int) -> Any:
        try:
            return self._transform(row)  # type: ignore[misc]  # only called if there is one
        except Exception as exc:
            exc.add_note(f"fd.dataset: the transform raised this for row {index} of {self.source}.")
            raise

    def _open(self) -> _OpenTable:
        if self._opened is None:
            opened = _OpenTable(self.source, self._wanted, self._images, strict=self._transform is None)
            if opened.rows != getattr(self, "_rows", opened.rows):
                raise UsageError(
                    f"fd.dataset: {self.source} has {opened.rows} rows here, and had {self._rows} when the data set "
                    "was made; call fd.dataset again after a change of the files."
                )
            self._opened = opened
        return self._opened


class _OpenTable:
    """A table in memory maps, and the columns from which rows are read.

    If it is ``strict``, each column must be a tensor.
    """

    def __init__(self, source: str, columns: Sequence[str], images: Sequence[str], *, strict: bool) -> None:
        found = find(source)
        check = partial(check_types, images=images, strict=strict, name=source)
        self._table = MappedTable(_paths(found, columns, check), columns, source)
        self.rows = self._table.rows
        names = self._table.schema.names
        check(self._table.schema)
        self.readers = {
            name: self._image(name, found) if name in images else self._value(name, strict) for name in names
        }

    def take(self, indices: Sequence[int]) -> Rows:
        """Return the rows with these indices."""
        import torch

        from farandole.datasets.rows import Rows

        which, local = self._table.locate(indices)
        taken = {name: reader.take(which, local) for name, reader in self.readers.items()}
        return Rows(
            {name: values if isinstance(values, list) else torch.from_numpy(values) for name, values in taken.items()}
        )

    def _value(self, name: str, strict: bool) -> Reader:
        try:
            return NumberColumn(self._table, name)
        except NoTensorError as exc:
            if not strict:
                return ValueColumn(self._table, name)
            raise no_tensor(name, exc) from exc

    def _image(self, name: str, source: Source) -> Reader:
        try:
            from farandole.datasets.images import ImageColumn
        except ModuleNotFoundError as exc:
            raise UsageError(
                f"fd.dataset: images need {exc.name}, which is not installed; run `pip install pillow torch`."
            ) from exc
        return ImageColumn(self._table, name, Path(source.folder) if source.local else None)


def check_types(schema: pa.Schema, *, images: Sequence[str], strict: bool, name: str) -> None:
    """Raise UsageError if a column of images is missing, or another column has a type that is no tensor.

    Unless it is ``strict``, columns may have any type. Errors name the table ``name``.
    """
    check_names(schema.names, images, name)
    for field in schema if strict else ():
        if field.name not in images:
            try:
                check_type(field.type)
            except NoTensorError as exc:
                raise no_tensor(field.name, exc) from exc


def no_tensor(name: str, reason: NoTensorError) -> UsageError:
    """Return the error for a column that cannot be a tensor."""
    return UsageError(
        f"fd.dataset: the column {name!r} {reason}. Name the `columns` to read without it, give a `transform` that "
        "makes a tensor of its values, or change the table, e.g. with fillna or dropna for missing values."
    )


def _paths(source: Source, columns: Sequence[str], check: Callable[[pa.Schema], None]) -> list[Path]:
    """Return the Arrow files that can be mapped: those of the table, or a copy."""
    own = [Path(file.path) for file in source.files]
    if source.local and source.format == "arrow" and all(map(is_mappable, own)):
        return own
    return [copy_of(source, columns, check)]
