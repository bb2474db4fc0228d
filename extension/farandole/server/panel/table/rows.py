"""Makes the rows of a page, with texts so short that the page is small whatever users have written."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from farandole.runs.model import RunInfo
from farandole.runs.writer import strict_json
from farandole.server.panel.runs import RunIndex
from farandole.server.panel.table.columns import Column, Columns
from farandole.server.panel.table.disk_use import DiskUse
from farandole.server.panel.wire_routes import RunRow, RunTable

MOST_BYTES = 200_000
"""Maximum size of a page of `MOST_ROWS` rows with the default columns, in bytes of JSON."""
MOST_ROWS = 100
LENGTHS = 1_200, 600, 300, 150, 75, 32, 16
"""Maximum length of each text of a row, and of all its tags, in bytes of JSON. The first one is used with which the
rows fit in the page."""
LONG = {"name", "error", "notes", "notebook"}
"""The texts that may be long. Others take more bytes than `LONGEST_WORD` only in damaged files."""
LONGEST_WORD = 66
WHOLE_NAME = 80
"""Minimum length to which the name of a run is shortened, in characters of at most four bytes."""
MOST_NAMES = 500
MOST_NAMES_BYTES = 20_000
"""Maximum number and size of the listed names of series, of hyper-parameters, and of tags."""
LONGEST_NAME = 500
"""Names that take more bytes than this are not listed, because a request could not contain several of them."""


class Rows:
    """Makes the rows of runs. Any thread may use this class."""

    def __init__(self, index: RunIndex, columns: Columns, disk_use: DiskUse) -> None:
        self._index = index
        self._columns = columns
        self._disk_use = disk_use

    def fill(self, page: RunTable, infos: Sequence[RunInfo], active: Collection[str]) -> RunTable:
        """Return a page with the rows of these runs. Their texts are shortened to fit into the page."""
        room = (MOST_BYTES - json_size(page)) // max(1, len(infos))
        cells = self._columns.cells(page["columns"])
        rows = [_fitted(self.row(info, cells, active), room) for info in infos]
        return {**page, "runs": rows}

    def row(self, info: RunInfo, cells: Sequence[Column], active: Collection[str]) -> RunRow:
        """Return the row of a run with its whole texts."""
        return {
            **self._index.summary(info, active),
            "values": [value(info) for value in cells],
            "tags": list(info.tags),
            "notes": info.notes,
            "bytes": self._disk_use.get(info),
        }


def _fitted(row: RunRow, room: int) -> RunRow:
    """Return a row that takes less than ``room`` bytes, or as few as possible."""
    short = row
    for most in LENGTHS:
        short = _shortened(row, most)
        if json_size(short) < room:
            break
    return short


def _shortened(row: RunRow, most: int) -> RunRow:
    name_size = min(json_size(f"{row['name'][:WHOLE_NAME]}…"), json_size("…") + 4 * WHOLE_NAME)
    least = {"name": name_size, **dict.fromkeys(LONG - {"name"}, 0)}
    texts = {
        name: shortened(text, max(most, least.get(name, LONGEST_WORD)))
        for name, text in row.items()
        if isinstance(text, str) and name != "id"
    }
    values = [shortened(value, most) if isinstance(value, str) else value for value in row["values"]]
    return cast("RunRow", {**row, **texts, "values": values, "tags": _first_tags(row["tags"], most)})


def _first_tags(tags: Sequence[str], most: int) -> list[str]:
    """Return the first tags, and an ellipsis if there are more than fit into ``most`` bytes."""
    left = most
    for place, tag in enumerate(tags):
        left -= json_size(tag) + 1
        if left < 0:
            return [*tags[:place], "…"]
    return list(tags)


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text whose JSON takes more than ``most`` bytes, with an ellipsis."""
    if json_size(text) <= most:
        return text
    room = most - json_size("…")
    kept = bisect_right(range(min(len(text), most)), room, key=lambda length: json_size(text[:length]) - 2)
    return f"{text[: max(0, kept - 1)]}…"


def listed(names: Iterable[str]) -> list[str]:
    """Return the names in alphabetical order, up to the maximum number and size of a list."""
    found: list[str] = []
    left = MOST_NAMES_BYTES
    for name in sorted(set(names)):
        if (size := json_size(name) + 1) > LONGEST_NAME:
            continue
        left -= size
        if left < 0 or len(found) == MOST_NAMES:
            break
        found.append(name)
    return found


def listed_counts(counts: Counter[str]) -> Counter[str]:
    """Return the number of runs for each name that `listed` returns."""
    return Counter({name: counts[name] for name in listed(counts)})


def json_size(value: Any) -> int:
    """Return the number of bytes of a value in a response."""
    if isinstance(value, str):
        return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return len(strict_json(value, separators=(",", ":")).encode())
