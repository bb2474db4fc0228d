"""The kernels of a worker, with the record of what they say in runs."""

from __future__ import annotations

from typing import Any

from jupyter_server._tz import utcnow

from farandole.server.activity import ActivityKernelManager
from farandole.server.journal.journal import Journal
from farandole.server.journal.journals import Journals


class RankKernelManager(ActivityKernelManager):
    """Jupyter Server's kernel manager for the ranks of a worker."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.records = Journals()

    @property
    def busy(self) -> bool:
        """Whether any kernel executes, or the end of a run waits here, and nowhere else, for a driver."""
        return super().busy or self.records.unread

    def note_read(self, record: Journal) -> None:
        """Note that a driver has read a record to its end: the worker has been of use, and need not keep it."""
        record.told = True
        self.last_kernel_activity = utcnow()

    async def shutdown_all(self, now: bool = False) -> None:  # type: ignore[override]
        """End all kernels, and leave what they said in runs to whoever comes back."""
        await super().shutdown_all(now)
        await self.records.leave_all()

    def stop_watching_activity(self, kernel_id: str) -> None:
        """Stop watching a kernel that ends; a run that goes on there ends with it."""
        super().stop_watching_activity(kernel_id)
        if (record := self.records.open_of(kernel_id)) is not None:
            record.owner.tell_stopped()
