"""Checks that files have the columns that are wanted, and that all of them have the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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

    The order of the columns may differ, and so may columns that are not wanted. A column without any value in some
    files, which has the type null there, has its type in the others.
    """
    (first, schema), *others = files
    check_names(schema.names, columns or schema.names, first)
    known = {column: _Column(schema.field(column).type, first) for column in columns or schema.names}
    for name, other in others:
        for column in columns or dict.fromkeys([*schema.names, *other.names]):
            had, has = known.get(column, _Column(None, first)), _column(column, other, name)
            _check_fit(column, had, has)
            if pa.types.is_null(had.kind):
                known[column] = has
    return pa.schema([(name, column.kind) for name, column in known.items()])


class _Column(NamedTuple):
    """The type of a column in a file, or None if it is missing there."""

    kind: pa.DataType | None
    file: str


def _column(name: str, schema: pa.Schema, file: str) -> _Column:
    return _Column(schema.field(name).type if schema.names.count(name) == 1 else None, file)


def _check_fit(name: str, had: _Column, has: _Column) -> None:
    there = had.kind is not None and has.kind is not None
    if there and (had.kind == has.kind or pa.types.is_null(had.kind) or pa.types.is_null(has.kind)):
        return
    now, before = (f"of the type {column.kind}" if column.kind else "missing" for column in (has, had))
    raise UsageError(
        f"fd.dataset: the files have different columns: {name!r} is {now} in {has.file}, and {before} in {had.file}. "
        "Write all files with the same columns, e.g. from one Dask data frame, or name the `columns` to read."
    )
