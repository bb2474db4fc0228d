"""Publishes the status of a driver's cluster, and handles the requests that other processes send to the mailbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from farandole.driver.cells.runner import STOP_SECONDS, CellRunner
from farandole.driver.control.mailbox import Mailbox
from farandole.driver.core.core import ClusterCore
from farandole.driver.workers.worker import Progress
from farandole.exceptions import FarandoleError, UsageError
from farandole.runs.folder import this_process
from farandole.runs.origin import Origin

OTHER = "another notebook or program"
"""Who stops a cluster that it does not lead with `farandole.driver.control.stop`."""


class ControlService:
    """Lets other processes, such as the panel, observe and change a cluster. Runs in the driver's event loop."""

    def __init__(
        self, core: ClusterCore, runner: CellRunner, *, local: bool, origin: Origin, progress: Progress
    ) -> None:
        self._core = core
        self._runner = runner
        self._local = local
        self._origin = origin
        self._progress = progress
        self._driver = this_process()
        self._since = time.time()
        self._scale_request: Mapping[str, Any] | None = None
        # Scale requests run one after another. If several are waiting, only the latest takes effect.
        self._scale_lock = asyncio.Lock()
        # `end` waits until a stop is complete, because a stop that is cancelled halfway would leave workers behind.
        self._stop_lock = asyncio.Lock()
        self._error: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._mailbox = Mailbox(
            runner.store.folder,
            self._describe,
            {"scale": self._scale, "stop": self._stop, "stop_run": self._stop_run},
        )

    async def begin(self) -> None:
        """Start to serve the mailbox."""
        self._task = asyncio.create_task(self._mailbox.serve(), name="mailbox")

    @property
    def wanted(self) -> int | None:
        """The requested number of workers while the cluster is being scaled, or None."""
        return None if self._scale_request is None else int(self._scale_request["workers"])

    def refuse_while_busy(self) -> None:
        """Raise UsageError if the cluster is running a cell or changing its size."""
        name = self._core.name
        if self._core.busy and self.wanted is not None:
            raise UsageError(
                f"cluster {name!r} is being scaled to {self.wanted} workers from the panel; run the cell "
                "when that is done"
            )
        if self._core.busy:
            raise UsageError(
                f"cluster {name!r} is running another cell; wait for it, or stop it with `%cluster interrupt`"
            )

    async def end(self) -> None:
        """Remove the mailbox, and cancel the requests that are in progress."""
        if self._task is not None:
            async with self._stop_lock:
                self._task.cancel()
                await asyncio.wait([self._task])

    def _describe(self) -> dict[str, Any]:
        core = self._core
        return {
            "cluster": core.name,
            "local": self._local,
            "hub": core.source.hub,
            "backend": core.backend,
            "notebook": self._origin.notebook,
            "kernel": self._origin.kernel,
            "driver": self._driver,
            "since": self._since,
            "busy": core.busy,
            "workers": core.workers,
            "ranks": [
                (handle.worker.name, kernel.rank, kernel.alive) for handle in core.handles for kernel in handle.kernels
            ],
            "runs": self._runner.going,
            "wanted": self.wanted,
            "error": self._error,
            "dask": None if (service := core.service) is None else asdict(service.status),
        }

    async def _scale(self, request: Mapping[str, Any]) -> None:
        """Scale the cluster to the requested number of workers."""
        workers = int(request["workers"])
        if workers < 1:
            raise UsageError(f"a cluster needs at least 1 worker, not {workers}; stop it instead")
        self._core.check_not_ended()
        self._scale_request, self._error = request, None
        try:
            async with self._scale_lock:
                if self._scale_request is request:
                    await self._core.scale(workers, self._progress, wanted=lambda: self._scale_request is request)
        except FarandoleError as exc:
            self._error = str(exc)
            raise
        finally:
            if self._scale_request is request:
                self._scale_request = None

    async def _stop(self, request: Mapping[str, Any]) -> None:
        """Stop the cluster and interrupt its running cell. Cells that are waiting or begin later raise an error."""
        core = self._core
        core.check_not_ended()
        other = request.get("by") == OTHER
        self._progress(f"cluster {core.name!r} is being stopped {f'by {OTHER}' if other else 'from the panel'}")
        async with self._stop_lock:
            # Set before anything else, because waiting and new requests must not start workers that nothing would stop.
            core.ended = f"cluster {core.name!r} was stopped from the panel. `%cluster start` starts another."
            if other:
                core.ended = f"cluster {core.name!r} was stopped by {OTHER}. `%cluster start` starts another."
            try:
                if core.busy:
                    await self._interrupt(self._runner.going)
                await core.stop()
            except BaseException as exc:
                core.ended, self._error = "", str(exc) or None
                raise

    async def _stop_run(self, request: Mapping[str, Any]) -> None:
        """Stop the requested run."""
        run = str(request["run"])
        if run not in self._runner.going:
            raise UsageError(f"run {run} is not in progress on this cluster")
        self._progress(f"run {run} is being stopped from the panel")
        await self._interrupt([run])

    async def _interrupt(self, runs: list[str]) -> None:
        """Interrupt the running cell, and give ``runs`` some time to end, so that their files record the end."""
        await self._core.interrupt()
        if self._core.ended:
            # A cell that is waiting for new ranks has no rank to interrupt.
            await self._core.break_off_starts()
        give_up = time.monotonic() + STOP_SECONDS
        while set(runs) & set(self._runner.going) and time.monotonic() < give_up:  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(0.05)
