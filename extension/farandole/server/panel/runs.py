"""The runs of the store as the panel lists them: only what is shown is read, and only when it has changed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from farandole.exceptions import RunNotFoundError
from farandole.protocol import Status
from farandole.runs.model import RunInfo
from farandole.runs.store import as_it_stands
from farandole.runs.view_files import VIEW
from farandole.server.panel import wire

NEWEST = 50
"""How many runs the stream tells of, and a page of the list holds unless asked."""
MOST = 200


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which runs are listed: ``text`` is looked for in id, name, notebook, cluster and error."""

    text: str = ""
    status: str = ""
    cluster: str = ""

    def lets_through(self, info: RunInfo) -> bool:
        """Say whether a run is listed."""
        words = " ".join((info.id, info.name, info.notebook, info.cluster, info.error or "")).lower()
        return (
            all(word in words for word in self.text.lower().split())
            and self.status in {"", info.status}
            and self.cluster in {"", info.cluster}
        )


class RunIndex:
    """Knows what the ``run.json`` of each run said when it was last read; for any thread."""

    def __init__(self, folder: Path, root: Path) -> None:
        """Look into the store ``folder``; notebooks are named from ``root`` on, the folder that Jupyter shows."""
        self.folder = folder
        self._root = root
        self._known: dict[str, tuple[tuple[int, ...], RunInfo]] = {}
        self._lock = threading.Lock()

    def ids(self) -> list[str]:
        """Return the ids of all runs, newest first: they begin with the time."""
        try:
            with os.scandir(self.folder) as entries:
                found = [one.name for one in entries if not one.name.startswith(".") and one.is_dir()]
        except OSError:
            return []
        return sorted(found, reverse=True)

    def find(self, run: str) -> RunInfo:
        """Return a run by its whole id; raises RunNotFoundError."""
        if run != Path(run).name or run.startswith(".") or (info := self._info(run)) is None:
            raise RunNotFoundError(f"there is no run {run!r} in {self.folder}")
        return info

    def page(self, *, going: Collection[str], wanted: Filter, offset: int = 0, limit: int = NEWEST) -> wire.RunPage:
        """Return a page of the list; without a filter nothing is read but the runs on it."""
        ids, limit = self.ids(), min(limit, MOST)
        if wanted != Filter():
            ids = [info.id for info in self._infos(ids) if wanted.lets_through(info)]
        shown = self._infos(ids[offset : offset + limit])
        return {"runs": [self.summary(info, going) for info in shown], "offset": offset, "total": len(ids)}

    def newest(self, going: Collection[str]) -> wire.RunPage:
        """Return the newest runs, and with them older ones that go on."""
        ids = self.ids()
        shown = [run for place, run in enumerate(ids) if place < NEWEST or run in going]
        return {"runs": [self.summary(info, going) for info in self._infos(shown)], "offset": 0, "total": len(ids)}

    def summary(self, info: RunInfo, going: Collection[str]) -> wire.RunSummary:
        """Return a run as the list shows it; ``going`` are the ids of those for which ranks compute."""
        return {
            "id": info.id,
            "name": info.name,
            "status": info.status.value,
            "goes_on": info.status is Status.RUNNING or (info.status is Status.LOST and info.id in going),
            "error": info.error,
            "started": info.started,
            "ended": info.ended,
            "seconds": self._seconds(info, going),
            "backend": info.backend,
            "cluster": info.cluster,
            "size": info.size,
            "notebook": self.notebook(info.notebook),
            "kernel": info.kernel,
            "cell": info.cell,
            "resumed_from": info.resumed_from,
        }

    def notebook(self, path: str) -> str:
        """Return a notebook's path as Jupyter shows it, where it is below its root folder."""
        return str(Path(path).relative_to(self._root)) if path and Path(path).is_relative_to(self._root) else path

    def _seconds(self, info: RunInfo, going: Collection[str]) -> float:
        if info.status is not Status.LOST or info.id in going:
            return max(0.0, info.seconds)
        # Nobody knows when its ranks ended; what they were last heard of is known.
        last = []
        for name in (VIEW, "run.json"):
            with suppress(OSError):
                last.append((info.folder / name).stat().st_mtime)
        return max(0.0, max(last, default=time.time()) - info.started)

    def _infos(self, ids: Iterable[str]) -> Sequence[RunInfo]:
        return [info for run in ids if (info := self._info(run)) is not None]

    def _info(self, run: str) -> RunInfo | None:
        """Return what is known of a run, None where its folder holds none that can be read."""
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
