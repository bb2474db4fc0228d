"""The list that ``%runs`` shows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape

from farandole.driver.runs import RunInfo

HEAD = ("id", "name", "status", "started", "seconds", "ranks", "backend")


class RunList:
    """Runs as a table, newest first; as text and as HTML."""

    def __init__(self, runs: Sequence[RunInfo]) -> None:
        self.runs = tuple(runs)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of the table."""
        return [_row(run) for run in self.runs]

    def __repr__(self) -> str:
        if not self.runs:
            return "no runs yet; a %%distributed_train cell makes one"
        return "\n".join("  ".join(row) for row in [HEAD, *self.rows()])

    def _repr_html_(self) -> str:
        if not self.runs:
            return f"<p>{escape(repr(self))}</p>"
        head = "".join(f"<th>{cell}</th>" for cell in HEAD)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(run: RunInfo) -> tuple[str, ...]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    return (run.id, run.name or "-", run.status, started, f"{run.seconds:.1f}", str(run.size), run.backend)
