"""The list of runs for the panel. It reads only the runs that are shown, and only if they have changed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from farandole.exceptions import RunNotFoundError
from farandole.protocol import Status
from farandole.runs.model import RunInfo
from farandole.runs.store import as_it_stands
from farandole.runs.view_files import VIEW
from farandole.server.panel import wire

NEWEST = 50
"""Number of runs in the stream, and the default for a page of the list."""
MOST = 200
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
    """Caches the ``run.json`` of each run; for use from any thread."""

    def __init__(self, folder: Path, root: Path) -> None:
        """Read the store ``folder``; paths of notebooks are relative to ``root``, the folder that Jupyter shows."""
        self.folder = folder
        self._root = root
        self._known: dict[str, tuple[tuple[int, ...], RunInfo]] = {}
        self._lock = threading.Lock()

    def ids(self) -> list[str]:
        """Return the ids of all runs, newest first (ids start with the time)."""
        try:
            with os.scandir(self.folder) as entries:
                found = [one.name for one in entries if not one.name.startswith(".") and one.is_dir()]
        except OSError:
            return []
        return sorted(found, reverse=True)

    def find(self, run: str) -> RunInfo:
        """Return a run by its complete id; raise RunNotFoundError if there is none."""
        if run != Path(run).name or run.startswith(".") or (info := self._info(run)) is None:
            raise RunNotFoundError(f"there is no run {run!r} in {self.folder}")
        return info

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
        """Return a run's info; None if it cannot be read."""
        path = self.folder / run / "run.json"
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            stat = path.stat()
            version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            with self._lock:
                known = self._known.get(run)
            if known is None or known[0] != version:
                known = version, RunInfo.from_json(json.loads(path.read_bytes()), path.parent)
                with self._lock:
                    self._known[run] = known
            return as_it_stands(known[1])
        return None
