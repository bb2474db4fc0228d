"""Starts, pauses and ends the Dask worker of this rank. Importing this module does not import Dask."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from farandole.exceptions import DaskError

if TYPE_CHECKING:
    from farandole.ranks.data.worker import DataWorker


class Engine:
    """The Dask worker of this rank, if there is one."""

    def __init__(self) -> None:
        self._worker: DataWorker | None = None
        self._schedulers: list[str] = []
        """The addresses of all schedulers that this rank has served, the current one last."""
        self._pauses = False
        self._training = False

    def start(self, scheduler: str, security: dict[str, str], *, pauses: bool) -> str:
        """Start a Dask worker, and return its address. A Dask worker of an earlier scheduler ends.

        If it ``pauses``, it begins no task while a training cell runs. Raises DaskError if Dask is not installed, the
        scheduler cannot be reached, or another notebook has started Dask since.
        """
        if scheduler in self._schedulers[:-1]:
            # Otherwise two notebooks would take the rank from each other again and again.
            raise DaskError(
                "another notebook has started Dask on this rank; to use Dask here again, call `shutdown` of the client "
                "and then `cluster.dask()`"
            )
        try:
            # Ranks that do no such work need no time to import Dask.
            from farandole.ranks.data.worker import DataWorker
        except ImportError as exc:
            raise DaskError(
                f"Dask is not installed on this worker ({exc}); use an image that has `farandole[data]`"
            ) from exc
        self.stop()
        if scheduler not in self._schedulers:
            self._schedulers.append(scheduler)
        self._worker = DataWorker(scheduler, security)
        self.set_pauses(pauses=pauses)
        return self._worker.address()

    def set_pauses(self, *, pauses: bool) -> None:
        """Set whether the Dask worker begins no task while a training cell runs. One may be running now."""
        self._pauses = pauses
        if self._worker is None:
            return
        if self._pauses and self._training:
            self._worker.executor.pause()
        else:
            self._worker.executor.resume()

    def end(self, scheduler: str) -> None:
        """End the Dask worker, unless another notebook has started one for its own scheduler since."""
        if self._schedulers[-1:] == [scheduler]:
            self.stop()

    def stop(self) -> None:
        """End the Dask worker, if there is one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def training_begins(self) -> None:
        """Pause the Dask worker, if the user has asked for that."""
        self._training = True
        self.set_pauses(pauses=self._pauses)

    def training_ends(self) -> None:
        """Let the Dask worker continue."""
        self._training = False
        self.set_pauses(pauses=self._pauses)


@cache
def current() -> Engine:
    """Return the engine of this process."""
    return Engine()
