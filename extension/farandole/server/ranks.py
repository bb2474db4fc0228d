"""The kernels of a worker, with the record of what they say in runs."""

from __future__ import annotations

from typing import Any

from farandole.server.activity import ActivityKernelManager
from farandole.server.record import Records


class RankKernelManager(ActivityKernelManager):
    """Jupyter Server's kernel manager for the ranks of a worker."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.records = Records()

    def stop_watching_activity(self, kernel_id: str) -> None:
        """Stop watching a kernel that ends; a run that goes on there ends with it."""
        super().stop_watching_activity(kernel_id)
        if (record := self.records.open_of(kernel_id)) is not None:
            record.owner.tell_stopped()
