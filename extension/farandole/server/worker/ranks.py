"""The kernel manager of a worker, which also manages the journals of the worker's ranks."""

from __future__ import annotations

from typing import Any

from jupyter_server._tz import utcnow

from farandole.server.activity import ActivityKernelManager
from farandole.server.journal.journal import Journal
from farandole.server.journal.journals import Journals


class RankKernelManager(ActivityKernelManager):
    """Jupyter Server's kernel manager, extended with the journals of a worker's ranks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.journals = Journals()

    @property
    def busy(self) -> bool:
        """True while a kernel is executing a request, or while only this worker has a record of the end of a run."""
        return super().busy or self.journals.has_unread_end

    def note_read(self, journal: Journal) -> None:
        """Record that a driver has received a journal to its end, which counts as activity of this server."""
        journal.end_was_read = True
        self.last_kernel_activity = utcnow()

    async def shutdown_all(self, now: bool = False) -> None:  # type: ignore[override]
        """Shut down all kernels and persist their journals."""
        await super().shutdown_all(now)
        await self.journals.persist_all()

    def stop_watching_activity(self, kernel_id: str) -> None:
        """Stop tracking a kernel that is shutting down, and end its active run, if any."""
        super().stop_watching_activity(kernel_id)
        if (journal := self.journals.active(kernel_id)) is not None:
            journal.owner.end_stopped_run()
