"""Checks that files have the columns that are wanted, and that all of them have the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from farandole.exceptions import UsageError
from farandole.suggestions import did_you_mean

MOST_NAMES = 20
"""How many names of columns an error lists."""


def check_names(known: Sequence[str], columns: Iterable[str], name: str) -> None:
    """Raise UsageError if a column is not one of those that the table ``name`` has."""
    for column in columns:
        if column not in known:
            listed = ", ".join(known[:MOST_NAMES]) + ", ..." * (len(known) > MOST_NAMES)
            hint = did_you_mean(column, known)
            raise UsageError(f"fd.dataset: {name} has no column {column!r}. It has the columns {listed}.{hint}")
        if known.count(column) > 1:
            raise UsageError(f"fd.dataset: {name} has several columns {column!r}; rename one of them.")


def common_schema(files: Iterable[tuple[str, Any]], columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the wanted columns, or of all. It must be the same in all files: pairs of name and schema.

    The order of the columns may differ, and so may columns that are not wanted.
    """
    (first, schema), *others = files
    check_names(schema.names, columns or schema.names, first)
    wanted = pa.schema([schema.field(column) for column in columns or schema.names])
    for name, other in others:
        for column in columns or dict.fromkeys([*schema.names, *other.names]):
            _check_same(column, (first, schema), (name, other))
    return wanted


def _check_same(column: str, first: tuple[str, pa.Schema], other: tuple[str, pa.Schema]) -> None:
    kinds = [schema.field(column).type if schema.names.count(column) == 1 else None for _, schema in (first, other)]
    if kinds[0] != kinds[1]:
        has, had = (f"of the type {kind}" if kind else "missing" for kind in reversed(kinds))
        raise UsageError(
            f"fd.dataset: the files have different columns: {column!r} is {has} in {other[0]}, and {had} in "
            f"{first[0]}. Write all files with the same columns, e.g. from one Dask data frame, or name the `columns` "
            "to read."
        )
