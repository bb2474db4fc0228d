"""Runs jobs that no request waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LOG = logging.getLogger(__name__)


class Background:
    """Runs jobs one after the other on a thread, which ends when no jobs are left. Any thread may use this class."""

    def __init__(self) -> None:
        self._jobs: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, key: str, job: Callable[[], object]) -> None:
        """Add a job, unless a job with the same key is still waiting."""
        with self._lock:
            self._jobs.setdefault(key, job)
            # A thread that an unexpected error has ended is replaced.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="farandole-table", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:
                # The jobs that wait must be run although this one has failed.
                LOG.exception("a background job of the table of runs has failed")

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if self._jobs:
                return self._jobs.pop(next(iter(self._jobs)))
            self._thread = None
            return None
