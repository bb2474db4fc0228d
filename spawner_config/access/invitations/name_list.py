"""Reads lists of user names: one name in each line, or a CSV file with a column `username`."""

from __future__ import annotations

import csv
from dataclasses import dataclass

MOST_NAMES = 500
COLUMN = "username"


class ListError(ValueError):
    """Raised if a list cannot be read. The message contains the remedy."""


@dataclass(frozen=True)
class Entry:
    """A name and the number of its line, counted from 1."""

    line: int
    name: str


def decode(body: bytes) -> str:
    """Return the text of an uploaded file; raises `ListError` if it is not UTF-8."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ListError("The file is not UTF-8. Save it as CSV UTF-8.") from exc


def read_names(text: str) -> list[Entry]:
    """Return the names in a list, in their order; raises `ListError` if it has no or too many names, or no column."""
    rows = _rows(text)
    head = [cell.lower() for cell in rows[0][1]] if rows else []
    if COLUMN in head:
        rows, column = rows[1:], head.index(COLUMN)
    elif any(len(cells) > 1 for _, cells in rows):
        raise ListError(f"The list has several columns. The first line must name them, and one must be {COLUMN}.")
    else:
        column = 0
    if not rows:
        raise ListError("The list has no names.")
    entries = [Entry(line, cells[column] if column < len(cells) else "") for line, cells in rows]
    if len(entries) > MOST_NAMES:
        raise ListError(f"The list has {len(entries)} names. Split it into lists of at most {MOST_NAMES}.")
    return entries


def _rows(text: str) -> list[tuple[int, list[str]]]:
    """Return the number and the cells of each line that is not empty. Spreadsheets separate cells in several ways."""
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    reader = csv.reader(lines, delimiter=next((mark for mark in ",;\t" if mark in first), ","), strict=True)
    rows = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                rows.append((reader.line_num, cells))
    except csv.Error as exc:
        raise ListError(f"Line {reader.line_num} of the list cannot be read: {exc}.") from exc
    return rows
