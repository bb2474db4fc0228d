"""Lists runs for the panel. A run is read when it is needed, and again only if its ``run.json`` has changed."""

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
"""Number of newest runs that the stream contains, and the default number of runs on a page of the list."""
MOST = 200
LONGEST_TEXT = 10_000
"""Maximum length of a string in the list, such as an error, in characters."""
MOST_NOTICES = 100
SHOWN = "id", "name", "error", "started", "ended", "backend", "cluster", "size", "kernel", "cell", "resumed_from"


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Selects runs. Each word of ``text`` must occur in the id, name, notebook, cluster or error of a run."""

    text: str = ""
    status: str = ""
    cluster: str = ""

    def lets_through(self, info: RunInfo) -> bool:
        """Return whether the filter selects a run."""
        words = " ".join((info.id, info.name, info.notebook, info.cluster, info.error or "")).lower()
        return (
            all(word in words for word in self.text.lower().split())
            and self.status in {"", info.status}
            and self.cluster in {"", info.cluster}
        )


class RunIndex:
    """Caches the fields of each ``run.json`` that the list shows. Any thread may use this class.

    The list also contains runs that cannot be read, with the reason as their error. `find` raises this error.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        """List the runs in ``folder``. Paths of notebooks below ``root``, Jupyter's root folder, are relative to it."""
        self.folder = folder
        self._root = root
        self._known: dict[str, tuple[tuple[int, ...], RunInfo | RunUnreadableError]] = {}
        self._lock = threading.Lock()

    def ids(self) -> list[str]:
        """Return the ids of all runs, newest first. An id begins with the start time, so ids can be sorted by time."""
        try:
            return list(reversed(run_names(self.folder)))
        except OSError:
            return []

    def find(self, run: str) -> RunInfo:
        """Return the run with this complete id, without its results.

        Raises RunNotFoundError if the run does not exist, and RunUnreadableError if it cannot be read.
        """
        if run != Path(run).name or run.startswith(".") or (info := self._read(run)) is None:
            raise RunNotFoundError(f"there is no run {run[:100]!r} in {self.folder}")
        if isinstance(info, RunUnreadableError):
            raise info
        return as_it_stands(info)

    def page(self, *, active: Collection[str], wanted: Filter, offset: int = 0, limit: int = NEWEST) -> wire.RunPage:
        """Return a page of the list. Without a filter, this method reads only the runs on the page."""
        ids, limit = self.ids(), min(limit, MOST)
        if wanted != Filter():
            ids = [info.id for info in self._infos(ids) if wanted.lets_through(info)]
        shown = self._infos(ids[offset : offset + limit])
        return {"runs": [self.summary(info, active) for info in shown], "offset": offset, "total": len(ids)}

    def newest(self, active: Collection[str]) -> wire.RunPage:
        """Return the newest runs and all older runs that are active."""
        ids = self.ids()
        shown = [run for place, run in enumerate(ids) if place < NEWEST or run in active]
        return {"runs": [self.summary(info, active) for info in self._infos(shown)], "offset": 0, "total": len(ids)}

    def summary(self, info: RunInfo, active: Collection[str]) -> wire.RunSummary:
        """Return the list entry for a run. ``active`` contains the ids of the runs that ranks are executing."""
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
        """Return a notebook's path relative to Jupyter's root folder, or unchanged if it is outside this folder."""
        return str(Path(path).relative_to(self._root)) if path and Path(path).is_relative_to(self._root) else path

    def _seconds(self, info: RunInfo, active: Collection[str]) -> float:
        if info.status is not Status.LOST or info.id in active:
            return max(0.0, info.seconds)
        # The time at which the ranks of a lost run ended is unknown. The last change of its files is the best estimate.
        last = []
        for name in (VIEW, "run.json"):
            with suppress(OSError):
                last.append((info.folder / name).stat().st_mtime)
        return max(0.0, max(last, default=time.time()) - info.started)

    def _infos(self, ids: Iterable[str]) -> Sequence[RunInfo]:
        return [info for run in ids if (info := self._info(run)) is not None]

    def _info(self, run: str) -> RunInfo | None:
        """Return a run's info, or None if the run does not exist.

        If the run cannot be read, the info contains the reason as its error.
        """
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
        """Return the content of ``run.json`` or the error from reading it, or None if the file does not exist."""
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
            # The traceback of the first error would keep the content of the file in memory, so a new one is created.
            info = RunUnreadableError(str(error))
            if isinstance(error.__cause__, OSError):
                # Not cached, because reading the file may succeed the next time.
                return info
        with self._lock:
            self._known[run] = version, info
        return info


def _slim(info: RunInfo) -> RunInfo:
    """Return a run's info without fields that may be large, because the cache may contain thousands of runs."""
    texts = {name: value for name, value in vars(info).items() if type(value) is str and name != "id"}
    short: dict[str, Any] = {name: text[:LONGEST_TEXT] for name, text in texts.items()}
    notices = tuple(notice[:LONGEST_TEXT] for notice in info.notices[-MOST_NOTICES:])
    return replace(info, **short, notices=notices, results={}, options={}, versions={}, git=None)
