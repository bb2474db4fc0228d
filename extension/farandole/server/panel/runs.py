"""The list of runs for the panel. It reads only the runs that are shown, and only if they have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from farandole.exceptions import RunNotFoundError, RunUnreadableError
from farandole.protocol import LATEST, Status
from farandole.runs.folder import as_it_stands, run_names, stored_info
from farandole.runs.model import RunInfo
from farandole.runs.view_files import VIEW
from farandole.server.panel import wire

NEWEST = 50
"""Number of runs in the stream, and the default for a page of the list."""
MOST = 200
LONGEST_TEXT = 10_000
"""Limit for the characters of a text, such as an error, in the list."""
MOST_NOTICES = 100
SHOWN = "id", "name", "error", "started", "ended", "backend", "cluster", "size", "kernel", "cell", "resumed_from"


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Selects runs; ``text`` is searched for in id, name, notebook, cluster and error."""

    text: str = ""
    status: str = ""
    cluster: str = ""

    def lets_through(self, info: RunInfo) -> bool:
        """Return whether a run is selected."""
        words = " ".join((info.id, info.name, info.notebook, info.cluster, info.error or "")).lower()
        return (
            all(word in words for word in self.text.lower().split())
            and self.status in {"", info.status}
            and self.cluster in {"", info.cluster}
        )


class RunIndex:
    """Caches what the list needs of the ``run.json`` of each run; for use from any thread.

    A run that cannot be read is in the list with the reason as its error, and `find` raises it.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        """Read the store ``folder``; paths of notebooks are relative to ``root``, the folder that Jupyter shows."""
        self.folder = folder
        self._root = root
        self._known: dict[str, tuple[tuple[int, ...], RunInfo | RunUnreadableError]] = {}
        self._lock = threading.Lock()

    def ids(self) -> list[str]:
        """Return the ids of all runs, newest first (ids start with the time)."""
        try:
            return list(reversed(run_names(self.folder)))
        except OSError:
            return []

    def find(self, run: str) -> RunInfo:
        """Return a run by its complete id, without its results.

        Raises RunNotFoundError if there is none, and RunUnreadableError if it cannot be read.
        """
        if run != Path(run).name or run.startswith(".") or (info := self._read(run)) is None:
            raise RunNotFoundError(f"there is no run {run[:100]!r} in {self.folder}")
        if isinstance(info, RunUnreadableError):
            raise info
        return as_it_stands(info)

    def page(self, *, active: Collection[str], wanted: Filter, offset: int = 0, limit: int = NEWEST) -> wire.RunPage:
        """Return a page of the list. Without a filter, only the runs on the page are read."""
        ids, limit = self.ids(), min(limit, MOST)
        if wanted != Filter():
            ids = [info.id for info in self._infos(ids) if wanted.lets_through(info)]
        shown = self._infos(ids[offset : offset + limit])
        return {"runs": [self.summary(info, active) for info in shown], "offset": offset, "total": len(ids)}

    def newest(self, active: Collection[str]) -> wire.RunPage:
        """Return the newest runs, and active runs that are older."""
        ids = self.ids()
        shown = [run for place, run in enumerate(ids) if place < NEWEST or run in active]
        return {"runs": [self.summary(info, active) for info in self._infos(shown)], "offset": 0, "total": len(ids)}

    def summary(self, info: RunInfo, active: Collection[str]) -> wire.RunSummary:
        """Return a run as in the list; ``active`` are the ids of the runs for which ranks compute."""
        status = info.status
        shown = {name: getattr(info, name) for name in SHOWN}
        derived = {
            "status": status.value,
            "goes_on": status is Status.RUNNING or (status is Status.LOST and info.id in active),
            "seconds": self._seconds(info, active),
            "notebook": self.notebook(info.notebook),
        }
        return cast("wire.RunSummary", {**shown, **derived})

    def notebook(self, path: str) -> str:
        """Return a notebook's path relative to Jupyter's root folder, if it is below that."""
        return str(Path(path).relative_to(self._root)) if path and Path(path).is_relative_to(self._root) else path

    def _seconds(self, info: RunInfo, active: Collection[str]) -> float:
        if info.status is not Status.LOST or info.id in active:
            return max(0.0, info.seconds)
        # It is unknown when the ranks of a lost run ended; the last change of its files is the best estimate.
        last = []
        for name in (VIEW, "run.json"):
            with suppress(OSError):
                last.append((info.folder / name).stat().st_mtime)
        return max(0.0, max(last, default=time.time()) - info.started)

    def _infos(self, ids: Iterable[str]) -> Sequence[RunInfo]:
        return [info for run in ids if (info := self._info(run)) is not None]

    def _info(self, run: str) -> RunInfo | None:
        """Return a run's info, with the reason as its error if it cannot be read; None if it is not there."""
        info = self._read(run)
        return self._placeholder(run, info) if isinstance(info, RunUnreadableError) else info and as_it_stands(info)

    def _placeholder(self, run: str, error: RunUnreadableError) -> RunInfo:
        changed = 0.0
        with suppress(OSError):
            changed = min(max(0.0, (self.folder / run / "run.json").lstat().st_mtime), LATEST)
        return RunInfo(
            id=run, folder=self.folder / run, status=Status.LOST, error=str(error), started=changed, ended=changed
        )

    def _read(self, run: str) -> RunInfo | RunUnreadableError | None:
        """Return what ``run.json`` holds, or why it cannot be read; None if there is none."""
        try:
            stat = (self.folder / run / "run.json").lstat()
        except (OSError, ValueError):
            return None
        version = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
        with self._lock:
            known = self._known.get(run)
        if known is not None and known[0] == version:
            return known[1]
        info: RunInfo | RunUnreadableError
        try:
            info = _slim(stored_info(self.folder / run))
        except RunUnreadableError as error:
            # Without the traceback, which would keep the content of the file in memory.
            info = RunUnreadableError(str(error))
            if isinstance(error.__cause__, OSError):
                # It may work the next time.
                return info
        with self._lock:
            self._known[run] = version, info
        return info


def _slim(info: RunInfo) -> RunInfo:
    """Return a run's info without what may be large: there may be thousands of runs."""
    texts = {name: value for name, value in vars(info).items() if type(value) is str and name != "id"}
    short: dict[str, Any] = {name: text[:LONGEST_TEXT] for name, text in texts.items()}
    notices = tuple(notice[:LONGEST_TEXT] for notice in info.notices[-MOST_NOTICES:])
    return replace(info, **short, notices=notices, results={}, options={}, versions={}, git=None)
