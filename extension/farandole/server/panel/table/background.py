"""Runs jobs on a thread, so that no request has to wait until all of them are done."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias

Job: TypeAlias = Callable[[], object]

LOG = logging.getLogger(__name__)


class Background:
    """Runs jobs one after the other on a thread, which ends when no jobs are left. Any thread may use this class."""

    def __init__(self) -> None:
        self._urgent: dict[Hashable, Job] = {}
        self._others: dict[Hashable, Job] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, jobs: Mapping[Hashable, Job], *, urgent: bool = False) -> threading.Event:
        """Add jobs, except those whose keys are still waiting. Urgent jobs run before all others.

        Return an event that is set when all of these jobs are done.
        """
        done = threading.Event()
        with self._lock:
            waiting = self._urgent if urgent else self._others
            for key, job in jobs.items():
                waiting.setdefault(key, job)
            # Jobs run in the order of this dictionary, so this one runs after all jobs from above.
            waiting[object()] = done.set
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="farandole-table", daemon=True)
                self._thread.start()
        return done

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:
                # The jobs that wait must be run although this one has failed.
                LOG.exception("a background job of the table of runs has failed")

    def _next(self) -> Job | None:
        with self._lock:
            for waiting in (self._urgent, self._others):
                if waiting:
                    return waiting.pop(next(iter(waiting)))
            self._thread = None
            return None
