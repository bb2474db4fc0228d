"""Items of a data set, and batches that are built from whole columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from farandole.exceptions import UsageError


class Row(dict[str, Any]):
    """The values of a row by column."""


class Rows(Sequence[Any]):
    """Some rows of a table, as a sequence of `Row`.

    A tensor for each value of each row would take most of the time in which a batch is made. If the rows are not looked
    at, torch's ``default_collate`` therefore gets their columns instead, see `collate_rows`.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return min(map(len, self.columns.values()))

    def __getitem__(self, index: Any) -> Any:
        made = {name: values[index] for name, values in self.columns.items()}
        return Rows(made) if isinstance(index, slice) else Row(made)

    def __iter__(self) -> Iterator[Row]:
        for values in zip(*self.columns.values(), strict=True):
            yield Row(zip(self.columns, values, strict=True))


def collate_rows(batch: Sequence[Row], *, collate_fn_map: Any = None) -> dict[str, Any]:
    """Return the batch of some rows: a dict with a tensor for each column."""
    if isinstance(batch, Rows):
        return {name: _stacked(name, values) for name, values in batch.columns.items()}
    return {name: collate([row[name] for row in batch], collate_fn_map=collate_fn_map) for name in batch[0]}


def _stacked(name: str, values: Any) -> torch.Tensor:
    """Return a column as one tensor. Images are separate tensors until then."""
    if isinstance(values, torch.Tensor):
        return values
    shapes = {tuple(value.shape) for value in values}
    if len(shapes) > 1:
        first, other, *_ = sorted(shapes)
        raise UsageError(
            f"fd.dataset: images in the column {name!r} have different sizes: {list(first)} and {list(other)}. Give a "
            "transform that resizes them, e.g. with torch.nn.functional.interpolate."
        )
    return torch.stack(values)


# As torch documents it, a type of items may have a function of its own.
default_collate_fn_map[Row] = collate_rows
