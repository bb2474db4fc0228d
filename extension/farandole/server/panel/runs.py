"""Lists runs for the panel. A run is read when it is needed, and again only if its files have changed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from farandole.exceptions import RunNotFoundError, RunUnreadableError
from farandole.protocol import LATEST, Status, is_number
from farandole.reading import Version, version_of
from farandole.runs.folder import as_it_stands, run_names, stored_info
from farandole.runs.model import RunInfo
from farandole.runs.notes import NOTES, annotated
from farandole.runs.view_files import VIEW
from farandole.server.panel import wire
from farandole.server.panel.wire_routes import ConfigValue, RunPage

NEWEST = 50
"""Number of newest runs that the stream contains, and the default number of runs on a page of the list."""
MOST = 200
LONGEST_LISTED_TEXT = 10_000
"""Maximum length of a string that is kept in memory, such as an error, in characters."""
LONGEST_SHORT_TEXT = 200
"""Maximum length of the name and the error of a run in `RunPage`, in characters. ``GET runs/ID`` has longer ones."""
MOST_NOTICES = 100
MOST_CONFIG = 50
LONGEST_LISTED_CONFIG = 200
"""Maximum length of the name or the text of a hyper-parameter in the list, in characters."""
SHOWN = "id", "name", "error", "started", "ended", "backend", "cluster", "size", "kernel", "cell", "resumed_from"


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Selects runs. Each word of ``text`` must occur in a text of the run, or in a hyper-parameter such as ``lr=0.1``.

    The texts are the id, the names, the notebook, the cluster, the error, the tags and the notes.
    """

    text: str = ""
    status: str = ""
    cluster: str = ""
    tag: str = ""

    def lets_through(self, info: RunInfo) -> bool:
        """Return whether the filter selects a run."""
        return (
            self.status in {"", info.status}
            and self.cluster in {"", info.cluster}
            and self.tag in {"", *info.tags}
            and self._is_in_texts(info)
        )

    def _is_in_texts(self, info: RunInfo) -> bool:
        words = self.text.lower().split()
        if not words:
            return True
        own = (info.id, info.name, info.original_name, info.notebook, info.cluster, info.error or "", info.notes)
        texts = " ".join((*own, *info.tags, *map("=".join, _config_texts(info.config)))).lower()
        return all(word in texts for word in words)


def _config_texts(config: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return ((name, value if isinstance(value, str) else json.dumps(value)) for name, value in config.items())


class RunIndex:
    """Caches the fields of each ``run.json`` and ``notes.json`` that the list shows. Any thread may use this class.

    The list also contains runs that cannot be read, with the reason as their error. `find` raises this error.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        """List the runs in ``folder``. Paths of notebooks below ``root``, Jupyter's root folder, are relative to it."""
        self.folder = folder
        self._root = root
        self._known: dict[str, tuple[Version, RunInfo | RunUnreadableError]] = {}
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
        info = self._read(run) if run and run == Path(run).name and not run.startswith(".") else None
        if isinstance(info, RunUnreadableError):
            raise info
        if info is None:
            raise RunNotFoundError(f"there is no run {run[:100]!r} in {self.folder}")
        return as_it_stands(info)

    def listed(self, run: str) -> RunInfo:
        """Return the run with this complete id as it is in the list, even if its ``run.json`` is damaged.

        Raises RunNotFoundError if the run does not exist, and RunUnreadableError if its file may be intact but cannot
        be read now, for example because the connection to the storage is lost.
        """
        try:
            return self.find(run)
        except RunUnreadableError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
            return self._placeholder(run, error)

    def page(self, *, active: Collection[str], wanted: Filter, offset: int = 0, limit: int = NEWEST) -> RunPage:
        """Return a page of the list. Without a filter, this method reads only the runs on the page."""
        ids, limit = self.ids(), min(limit, MOST)
        if wanted != Filter():
            ids = [info.id for info in self.infos(ids) if wanted.lets_through(info)]
        shown = self.infos(ids[offset : offset + limit])
        return {"runs": [self._short(info, active) for info in shown], "offset": offset, "total": len(ids)}

    def newest(self, active: Collection[str]) -> RunPage:
        """Return the newest runs and all older runs that are active."""
        ids = self.ids()
        shown = [run for place, run in enumerate(ids) if place < NEWEST or run in active]
        return {"runs": [self._short(info, active) for info in self.infos(shown)], "offset": 0, "total": len(ids)}

    def summary(self, info: RunInfo, active: Collection[str]) -> wire.RunSummary:
        """Return the list entry for a run. ``active`` contains the ids of the runs that ranks are executing."""
        status = info.status
        shown = {name: getattr(info, name) for name in SHOWN}
        derived = {
            "status": status.value,
            "goes_on": status is Status.RUNNING or (status is Status.LOST and info.id in active),
            "seconds": self.seconds(info, active),
            "notebook": self.notebook(info.notebook),
        }
        return cast("wire.RunSummary", {**shown, **derived})

    def _short(self, info: RunInfo, active: Collection[str]) -> wire.RunSummary:
        """Return the list entry for a run with the beginnings of its name and error.

        The path of the notebook is whole, because pages compare it with those of open notebooks.
        """
        summary = self.summary(info, active)
        error = summary["error"]
        return {**summary, "name": _beginning(summary["name"]), "error": None if error is None else _beginning(error)}

    def notebook(self, path: str) -> str:
        """Return a notebook's path relative to Jupyter's root folder, or unchanged if it is outside this folder."""
        return str(Path(path).relative_to(self._root)) if path and Path(path).is_relative_to(self._root) else path

    def forget(self, run: str) -> None:
        """Drop what is known about a deleted run."""
        with self._lock:
            self._known.pop(run, None)

    def seconds(self, info: RunInfo, active: Collection[str]) -> float:
        """Return the duration of a run in seconds, until now if the run is in progress."""
        if info.status is not Status.LOST or info.id in active:
            return max(0.0, info.seconds)
        # The time at which the ranks of a lost run ended is unknown. The last change of its files is the best estimate.
        last = []
        for name in (VIEW, "run.json"):
            with suppress(OSError):
                last.append((info.folder / name).stat().st_mtime)
        return max(0.0, max(last, default=time.time()) - info.started)

    def infos(self, ids: Iterable[str]) -> Sequence[RunInfo]:
        """Return the infos of runs as they are in the list. Runs that do not exist are left out."""
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
        # This method is called for each run of the store, and Path objects would double its time.
        folder = f"{self.folder}/{run}"
        if not (version := version_of(f"{folder}/run.json")):
            return None
        version += version_of(f"{folder}/{NOTES}")
        with self._lock:
            known = self._known.get(run)
        if known is not None and known[0] == version:
            return known[1]
        info: RunInfo | RunUnreadableError
        try:
            info = _slim(annotated(stored_info(self.folder / run)))
        except RunUnreadableError as error:
            if isinstance(error.__cause__, OSError):
                # Not cached, because reading the file may succeed the next time.
                return error
            # The traceback of the first error would keep the content of the file in memory, so a new one is created.
            info = RunUnreadableError(str(error))
        with self._lock:
            self._known[run] = version, info
        return info


def _beginning(text: str) -> str:
    return text if len(text) <= LONGEST_SHORT_TEXT else f"{text[: LONGEST_SHORT_TEXT - 1]}…"


def _slim(info: RunInfo) -> RunInfo:
    """Return a run's info without fields that may be large, because the cache may contain thousands of runs."""
    texts = {name: value for name, value in vars(info).items() if type(value) is str and name != "id"}
    short: dict[str, Any] = {name: text[:LONGEST_LISTED_TEXT] for name, text in texts.items()}
    notices = tuple(notice[:LONGEST_LISTED_TEXT] for notice in info.notices[-MOST_NOTICES:])
    warnings = tuple(warning[:LONGEST_LISTED_TEXT] for warning in info.warnings[-MOST_NOTICES:])
    config = dict(islice(_config_values(info.config), MOST_CONFIG))
    slim: dict[str, Any] = {"results": {}, "options": {}, "versions": {}, "data_sets": {}, "git": None, "sync": {}}
    return replace(info, **short, notices=notices, warnings=warnings, config=config, **slim)


def _config_values(config: Mapping[str, Any]) -> Iterable[tuple[str, ConfigValue]]:
    """Yield the hyper-parameters, with long texts cut. Values that JSON or a page cannot represent become text."""
    for name, value in config.items():
        simple = value is None or isinstance(value, bool) or is_number(value)
        yield name[:LONGEST_LISTED_CONFIG], value if simple else str(value)[:LONGEST_LISTED_CONFIG]
