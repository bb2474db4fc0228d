"""Keeps a value of each run that takes long to read, and reads it again in the background when the run changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Generic, TypeVar

from farandole.runs.model import RunInfo
from farandole.server.panel.table.background import Background

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """The last known values of runs. Only one thread reads, however many requests there are.

    Any thread may use this class.
    """

    def __init__(self, version: Callable[[RunInfo], Hashable], read: Callable[[RunInfo], Value]) -> None:
        """Read values with ``read``, and again if the ``version`` of a run has changed."""
        self._version = version
        self._read = read
        self._known: dict[str, tuple[Hashable, Value]] = {}
        self._checked: dict[str, RunInfo] = {}
        """For each run, its record when its value was last read or checked."""
        self._background = Background()

    def get(self, info: RunInfo) -> Value | None:
        """Return the last known value of a run, which may be outdated, or None if it has not been read."""
        known = self._known.get(info.id)
        return None if known is None else known[1]

    def has_all(self, infos: Iterable[RunInfo]) -> bool:
        """Return whether the values of all these runs are known."""
        return all(info.id in self._known for info in infos)

    def renew(self, infos: Iterable[RunInfo], *, urgent: bool = False) -> threading.Event:
        """Read the values of new and changed runs in the background. Return an event that is set at the end.

        Values that are not urgent are read first if they are unknown, and the known ones are left for the next call.
        """
        wanted = list(infos)
        unknown = [] if urgent else [info for info in wanted if info.id not in self._known]
        return self._background.add({info.id: partial(self._renew, info) for info in unknown or wanted}, urgent=urgent)

    def renew_changed(self, infos: Iterable[RunInfo]) -> None:
        """Read the values of those runs that are new, have not ended, or have another info than at the last time."""
        self.renew(info for info in infos if info.ended is None or self._checked.get(info.id) is not info)

    def forget(self, run: str) -> None:
        """Drop the value of a deleted run."""
        self._known.pop(run, None)
        self._checked.pop(run, None)

    def _renew(self, info: RunInfo) -> None:
        version, known = self._version(info), self._known.get(info.id)
        if known is None or known[0] != version:
            self._known[info.id] = version, self._read(info)
        self._checked[info.id] = info
