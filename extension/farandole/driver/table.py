"""Formats tables as text or HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the table as HTML. A number and its unit stay on one line."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{_unbroken(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _unbroken(cell: str) -> str:
    return re.sub(r"(?<=\d) (?=[^\W\d])", "&nbsp;", escape(cell))
