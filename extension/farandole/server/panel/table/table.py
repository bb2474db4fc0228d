"""The table of runs: its rows, and what a user changes in them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from farandole.exceptions import RunUnreadableError
from farandole.protocol import Status
from farandole.reading import reason
from farandole.runs.lifecycle.lock import changing
from farandole.runs.lifecycle.tombstones import marked_as_deleted
from farandole.runs.model import RunInfo
from farandole.runs.notes import change_notes
from farandole.server.panel.charts import Charts
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.runs import NEWEST, Filter, RunIndex
from farandole.server.panel.table.cache import Cache
from farandole.server.panel.table.columns import Columns, contained, default_columns
from farandole.server.panel.table.deletion import hide, remove
from farandole.server.panel.table.disk_use import DiskUse
from farandole.server.panel.table.edits import check_unchanged, parts_of
from farandole.server.panel.table.rows import MOST_ROWS, Rows, listed, listed_counts
from farandole.server.panel.table.values import SeriesValues
from farandole.server.panel.wire_routes import RunRow, RunTable

WAIT_SECONDS = 0.5
"""How long a response waits for values to sort by, and then for the values in its rows."""
Unsure: TypeAlias = Callable[[str], str | None]
"""Returns why the active runs of a cluster may be unknown, or None if they are known."""


def _sure(_cluster: str) -> str | None:
    return None


class Table:
    """Returns pages of the table of runs, and changes and deletes runs. Any thread may use this class."""

    def __init__(self, index: RunIndex, charts: Charts) -> None:
        self._index = index
        self._values = SeriesValues(charts)
        self._disk_use = DiskUse()
        self._columns = Columns(index, self._values, self._disk_use)
        self._rows = Rows(index, self._columns, self._disk_use)
        # Changes from several pages are made one after the other, so that none of them is lost.
        self._changing = threading.Lock()

    def page(
        self,
        *,
        active: Collection[str],
        wanted: Filter,
        sort: str = "started",
        descending: bool = True,
        added: Sequence[str] = (),
        offset: int = 0,
        limit: int = NEWEST,
    ) -> RunTable:
        """Return a page of the table, which is not ``complete`` while values are still being read in the background.

        Rows have the values of the default columns and of the ``added`` ones. Raises UsageError if a column does not
        exist.
        """
        infos = self._index.infos(self._index.ids())
        chosen = [info for info in infos if wanted.lets_through(info)]
        complete = self._read_column(sort, chosen)
        ordered = self._columns.sorted(chosen, sort, descending=descending, active=active)
        shown = ordered[offset : offset + min(limit, MOST_ROWS)]
        complete = self._read_rows(shown) and complete
        # The names of the series come from all runs, also from those that the filter leaves out.
        self._values.renew_changed(infos)
        complete = self._values.has_all(infos) and complete
        series = listed_counts(self._values.names(infos))
        config = listed_counts(Counter(name for info in infos for name in info.config))
        defaults = default_columns(series, config)
        empty: RunTable = {
            "runs": [],
            "offset": offset,
            "total": len(chosen),
            "complete": complete,
            "columns": contained(defaults, added),
            "defaults": defaults,
            "series": list(series),
            "config": list(config),
            "tags": listed(tag for info in infos for tag in info.tags),
        }
        return self._rows.fill(empty, shown, active)

    def _read_column(self, name: str, infos: Sequence[RunInfo]) -> bool:
        """Read the values of a column for at most `WAIT_SECONDS`. Return whether the values of all runs are known."""
        cache = self._columns.read_from(name)
        if cache is None:
            return True
        cache.renew(infos).wait(WAIT_SECONDS)
        return cache.has_all(infos)

    def _read_rows(self, infos: Sequence[RunInfo]) -> bool:
        """Read the values of some rows for at most `WAIT_SECONDS`. Return whether all of them are known."""
        give_up = time.monotonic() + WAIT_SECONDS
        caches: tuple[Cache[Any], ...] = (self._values, self._disk_use)
        for read in [cache.renew(infos, urgent=True) for cache in caches]:
            read.wait(max(0.0, give_up - time.monotonic()))
        return all(cache.has_all(infos) for cache in caches)

    def change(self, run: str, edit: Mapping[str, Any], active: Collection[str]) -> RunRow:
        """Change the name, tags and notes of a run, and return its row with its whole texts and without values.

        Raises UsageError if the edit is invalid, RunNotFoundError, or RefusedError if a value has been changed since
        the page has shown it, or the file cannot be written.
        """
        values, before = parts_of(edit)
        with self._changing:
            info = self._index.find(run)
            try:
                change_notes(info.folder, values, partial(check_unchanged, info, values, before))
            except OSError as exc:
                raise RefusedError(
                    "failed",
                    f"the name, tags and notes of run {run!r} cannot be written: {reason(exc)}; check the free space "
                    f"and the permissions of {info.folder}",
                ) from exc
        info = self._index.find(run)
        self._read_rows([info])
        return self._rows.row(info, (), active)

    def delete(self, run: str, active: Collection[str], unsure: Unsure = _sure) -> None:
        """Delete a run that does not go on, even if its ``run.json`` is damaged.

        ``unsure`` returns why ``active`` may lack runs of a cluster, or None. Raises RefusedError if the run is or may
        be in progress, is used by a resumed run, or cannot be deleted, or RunNotFoundError.
        """
        with self._changing, _undisturbed(run, self._index.folder):
            info = self._listed(run)
            self._check_ended(info, active, unsure)
            self._check_unused(run, active)
            hidden = _hidden(info)
        self._index.forget(run)
        self._values.forget(run)
        self._disk_use.forget(run)
        _remove(run, hidden)

    def _check_ended(self, info: RunInfo, active: Collection[str], unsure: Unsure) -> None:
        """Raise RefusedError if a run is or may be in progress. The ranks of a lost run may still be executing it."""
        if self._index.summary(info, active)["goes_on"]:
            raise RefusedError(
                "runs_go_on", f"run {info.id} is in progress; stop it before you delete it", runs=[info.id]
            )
        if info.status is Status.LOST and (why := unsure(info.cluster)) is not None:
            raise RefusedError(
                "failed", f"run {info.id!r} may be in progress, so it is not deleted: {why}; try again later"
            )

    def _listed(self, run: str) -> RunInfo:
        """Return a run that is to be deleted, unless an error of the storage hides whether it is in progress."""
        try:
            return self._index.listed(run)
        except RunUnreadableError as exc:
            raise RefusedError(
                "failed", f"run {run!r} may be in progress, so it is not deleted: {exc}; try again later"
            ) from exc

    def _check_unused(self, run: str, active: Collection[str]) -> None:
        """Raise RefusedError if a run in progress was resumed from ``run``, whose checkpoints it may still read."""
        resumed = [info for info in self._index.infos(self._index.ids()) if info.resumed_from == run]
        users = [info.id for info in resumed if self._index.summary(info, active)["goes_on"]]
        if users:
            raise RefusedError(
                "runs_go_on", f"run {users[0]} is in progress and was resumed from run {run}; stop it first", runs=users
            )


@contextmanager
def _undisturbed(run: str, store: Path) -> Iterator[None]:
    """Let no driver take over a run in this context, in which the run is deleted."""
    with ExitStack() as stack:
        try:
            stack.enter_context(changing(store))
        except FileNotFoundError:
            # There is no store, so there is no such run either.
            pass
        except OSError as exc:
            raise _not_deleted(run, exc, store) from exc
        yield


def _hidden(info: RunInfo) -> Path:
    """Rename the folder of a run that is to be deleted, mark the run as deleted, and return its new path."""
    try:
        with marked_as_deleted(info.folder):
            return hide(info.folder)
    except OSError as exc:
        raise _not_deleted(info.id, exc, info.folder.parent) from exc


def _not_deleted(run: str, error: OSError, store: Path) -> RefusedError:
    """Return the error for a run that cannot be deleted because of an error of the volume."""
    return RefusedError(
        "failed",
        f"run {run!r} cannot be deleted, and nothing has changed: {reason(error)}; check the permissions of {store}",
    )


def _remove(run: str, hidden: Path) -> None:
    """Remove the hidden folder of a deleted run."""
    try:
        remove(hidden)
    except OSError as exc:
        raise RefusedError(
            "failed",
            f"run {run!r} is no longer listed, but a file of it cannot be removed: {reason(exc)}; correct the "
            f"permissions in {hidden}, which the next start of this server removes",
        ) from exc
