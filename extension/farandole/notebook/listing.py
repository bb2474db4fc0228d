"""The table of runs that the magic ``%runs`` shows."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from farandole.hyperparameters import Hyperparameter
from farandole.protocol import Status
from farandole.reading import printable
from farandole.runs.model import RunInfo
from farandole.runs.store import frame_of
from farandole.times import duration_text, time_text

if TYPE_CHECKING:
    import pandas as pd

HEAD = ("id", "name", "status", "started", "duration", "ranks", "backend", "config")
CONFIG_CHARACTERS = 60


class RunList:
    """A table of runs that a notebook can show as text or HTML. The rows have the order of ``runs``."""

    def __init__(self, runs: Sequence[RunInfo], *, detached: Container[str] = ()) -> None:
        """Make a table of ``runs``. ``detached`` contains the ids of the background runs among them."""
        self.runs = tuple(runs)
        self._detached = detached

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the table, without the heading."""
        return [_row(run, "running (detached)" if self._is_detached(run) else run.status) for run in self.runs]

    def dataframe(self) -> pd.DataFrame:
        """Return these runs as a pandas data frame with the columns of `farandole.load_runs`."""
        return frame_of(self.runs)

    def _is_detached(self, run: RunInfo) -> bool:
        return run.id in self._detached and run.status is Status.RUNNING

    def __repr__(self) -> str:
        if not self.runs:
            return "no runs yet; a %%distributed_train cell starts one"
        return "\n".join("  ".join(row) for row in [HEAD, *self.rows()])

    def _repr_html_(self) -> str:
        if not self.runs:
            return f"<p>{escape(repr(self))}</p>"
        head = "".join(f"<th>{cell}</th>" for cell in HEAD)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(run: RunInfo, status: str) -> tuple[str, ...]:
    started = time_text(run.started)
    duration, config = duration_text(run.seconds), _config(run.config)
    cells = (run.id, run.name or "-", status, started, duration, str(run.size), run.backend, config)
    return tuple(map(printable, cells))


def _config(config: Mapping[str, Hyperparameter]) -> str:
    """Return hyper-parameters as short text, such as ``lr=0.1, batch=64``."""
    text = ", ".join(f"{name}={value}" for name, value in config.items()) or "-"
    return text if len(text) <= CONFIG_CHARACTERS else f"{text[: CONFIG_CHARACTERS - 1]}…"
