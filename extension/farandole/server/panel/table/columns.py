"""Sorts the rows of the table of runs by a column."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

from farandole.exceptions import UsageError
from farandole.runs.model import RunInfo
from farandole.server.panel.runs import RunIndex
from farandole.server.panel.table.cache import Cache
from farandole.server.panel.table.disk_use import DiskUse
from farandole.server.panel.table.values import SeriesValues
from farandole.server.panel.wire_routes import ConfigValue

FIELDS = "name", "status", "started", "size", "cluster"
SERIES = re.compile(r"series\.(.+)\.(last|lowest|highest)", re.DOTALL)
Column: TypeAlias = Callable[[RunInfo], ConfigValue]
"""Returns the value by which a run is sorted, or None if the run has no value in this column."""


class Columns:
    """The columns of the table by their names in requests."""

    def __init__(self, index: RunIndex, values: SeriesValues, disk_use: DiskUse) -> None:
        self._index = index
        self._values = values
        self._disk_use = disk_use

    def sorted(
        self, infos: Sequence[RunInfo], name: str, *, descending: bool, active: Collection[str]
    ) -> list[RunInfo]:
        """Return runs sorted by a column. Raises UsageError for an unknown column.

        Runs without a value, and runs whose value has not been read, come last.
        """
        column = self._column(name, active)
        valued = [(_key(value), info) for info in infos if (value := column(info)) not in {None, ""}]
        valued.sort(key=lambda pair: pair[0], reverse=descending)
        found = [info for _, info in valued]
        ids = {info.id for info in found}
        return [*found, *(info for info in infos if info.id not in ids)]

    def read_from(self, name: str) -> Cache[Any] | None:
        """Return the cache with the values of a column, or None if these values are always known."""
        if name == "bytes":
            return self._disk_use
        return self._values if SERIES.fullmatch(name) else None

    def _column(self, name: str, active: Collection[str]) -> Column:
        if name in FIELDS:
            return attrgetter(name)
        if name == "seconds":
            return lambda info: self._index.seconds(info, active)
        if name == "bytes":
            return self._disk_use.get
        if name.startswith("config."):
            return lambda info: info.config.get(name.removeprefix("config."))
        if (found := SERIES.fullmatch(name)) is not None:
            return partial(self._values.value, name=found[1], which=found[2])
        raise UsageError(
            f"there is no column {name[:100]!r}; sort by {', '.join(FIELDS)}, seconds, bytes, config.NAME, or "
            "series.NAME.last, .lowest or .highest"
        )


def _key(value: ConfigValue) -> tuple[bool, Any]:
    """Return a key that sorts numbers before texts, because Python cannot compare them."""
    return (True, value.casefold()) if isinstance(value, str) else (False, value)
