"""Writes condensed data into a run's folder, so that the panel can read one small file instead of all reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole.runs.view import view_of
from farandole.runs.writer import strict_json

if TYPE_CHECKING:
    from farandole.runs.run import Run
    from farandole.runs.writer import RunFiles

VIEW = "view.json"
"""Name of the file with the data that `farandole.runs.view.view_of` returns for a run."""
LINES = "lines.json"
"""Name of the file with the series of a run, including a line for each rank. It contains ``{"series": [...]}``."""


@dataclass
class _File:
    """A file that is rewritten during the run, and the minimum time between two writes.

    This time is ``pause`` seconds or ``share`` times the duration of the last write, whichever is longer.
    """

    name: str
    make: Callable[[Run], dict[str, Any]]
    pause: float
    share: float
    due: float = 0.0
    version: int = -1


def _view(run: Run) -> dict[str, Any]:
    return view_of(run, time.time())


def _lines(run: Run) -> dict[str, Any]:
    return {"series": view_of(run, time.time(), per_rank=True)["series"]}


class ViewFiles:
    """Writes the view files of one run. It takes a small share of the driver's time, however many ranks there are."""

    def __init__(self, run: Run, files: RunFiles) -> None:
        self._run = run
        self._files = files
        self._all = (_File(VIEW, _view, 1.0, 25.0), _File(LINES, _lines, 5.0, 100.0))

    def renew(self, version: int, *, last: bool = False) -> None:
        """Write the files that are due and older than ``version``. If ``last`` is true, write all files.

        If this fails, empty the files, so that the panel reads the reports instead.
        """
        try:
            self._write_due(version, last=last)
        except BaseException:
            for file in self._all:
                self._files.replace(file.name, "")
            raise

    def _write_due(self, version: int, *, last: bool) -> None:
        for file in self._all:
            begun = time.monotonic()
            if last or (begun >= file.due and version != file.version):
                self._files.replace(file.name, strict_json(file.make(self._run)) + "\n")
                now = time.monotonic()
                file.due, file.version = now + max(file.pause, file.share * (now - begun)), version
