"""Sorts the runs of the table by a column, and returns the values of each column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

from farandole.exceptions import UsageError
from farandole.runs.model import RunInfo
from farandole.server.panel.runs import RunIndex
from farandole.server.panel.table.cache import Cache
from farandole.server.panel.table.disk_use import DiskUse
from farandole.server.panel.table.values import PARTS, SeriesValues
from farandole.server.panel.wire_routes import ConfigValue

FIELDS = "name", "status", "started", "size", "cluster"
SERIES = re.compile(r"series\.(.*)\.(last|lowest|highest)", re.DOTALL)
CONFIG = "config."
SHOWN_SERIES, SHOWN_CONFIG = 4, 8
"""How many series and hyper-parameters have columns that each page of the table contains."""
MOST_ADDED = 60
"""Maximum number of columns that a request adds to these."""
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

    def cells(self, names: Iterable[str]) -> list[Column]:
        """Return functions for the values of columns of series and hyper-parameters. A None becomes the text None."""
        return [
            partial(_config_cell, name=name.removeprefix(CONFIG)) if name.startswith(CONFIG) else self._column(name, ())
            for name in names
        ]

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
        if name.startswith(CONFIG):
            key = name.removeprefix(CONFIG)
            return lambda info: info.config.get(key)
        if (found := SERIES.fullmatch(name)) is not None:
            return partial(self._values.value, name=found[1], which=found[2])
        raise UsageError(
            f"there is no column {name[:100]!r}; sort by {', '.join(FIELDS)}, seconds, bytes, config.NAME, or "
            "series.NAME.last, .lowest or .highest"
        )


def default_columns(series: Counter[str], config: Counter[str]) -> list[str]:
    """Return the columns that each page contains: those of the series and hyper-parameters that most runs have.

    ``series`` and ``config`` are the listed names, with the number of runs that have them.
    """
    values = [f"series.{name}.{part}" for name in _most_common(series, SHOWN_SERIES) for part in PARTS]
    return [*values, *(f"{CONFIG}{name}" for name in _most_common(config, SHOWN_CONFIG))]


def _most_common(counts: Counter[str], most: int) -> list[str]:
    """Return the names that most runs have, in alphabetical order. Of names with equal counts, the first are taken."""
    return sorted(sorted(counts, key=lambda name: (-counts[name], name))[:most])


def contained(defaults: Sequence[str], added: Sequence[str]) -> list[str]:
    """Return the columns that a page contains: the default columns and the added ones.

    Raises UsageError if too many columns are added, or others than those of series and hyper-parameters.
    """
    if len(added) > MOST_ADDED:
        raise UsageError(f"a page of the table has at most {MOST_ADDED} added columns, not {len(added):,}; hide some")
    for name in added:
        if not name.startswith(CONFIG) and not SERIES.fullmatch(name):
            raise UsageError(
                f"there is no column {name[:100]!r} to add; add config.NAME, or series.NAME.last, .lowest or .highest"
            )
    return list(dict.fromkeys([*defaults, *added]))


def _config_cell(info: RunInfo, name: str) -> ConfigValue:
    return "None" if info.config.get(name, "") is None else info.config.get(name)


def _key(value: ConfigValue) -> tuple[bool, Any]:
    """Return a key that sorts numbers before texts, because Python cannot compare them."""
    return (True, value.casefold()) if isinstance(value, str) else (False, value)
