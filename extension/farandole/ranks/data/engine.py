"""Starts, pauses and ends the Dask worker of this rank. Importing this module does not import Dask."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from farandole.ranks.data.worker import DataWorker


class Engine:
    """The Dask worker of this rank, if there is one."""

    def __init__(self) -> None:
        self._worker: DataWorker | None = None
        self._pauses = False

    def start(self, scheduler: str, security: dict[str, str], *, pauses: bool) -> str:
        """Start a Dask worker, and return its address. A Dask worker of an earlier scheduler ends.

        If it ``pauses``, it begins no task while a training cell runs.
        """
        # Ranks that do no such work need no time to import Dask.
        from farandole.ranks.data.worker import DataWorker

        self.stop()
        self._worker, self._pauses = DataWorker(scheduler, security), pauses
        return self._worker.address()

    def stop(self) -> None:
        """End the Dask worker, if there is one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def training_begins(self) -> None:
        """Pause the Dask worker, if the user has asked for that."""
        if self._worker is not None and self._pauses:
            self._worker.executor.pause()

    def training_ends(self) -> None:
        """Let the Dask worker continue."""
        if self._worker is not None:
            self._worker.executor.resume()


@cache
def current() -> Engine:
    """Return the engine of this process."""
    return Engine()
