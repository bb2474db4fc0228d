"""Publishes the status of a driver's cluster and handles requests from outside, through the mailbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from farandole.driver.cells.runner import STOP_SECONDS, CellRunner
from farandole.driver.control.mailbox import Mailbox
from farandole.driver.core.core import ClusterCore
from farandole.driver.workers.worker import Progress
from farandole.exceptions import FarandoleError, UsageError
from farandole.runs.folder import this_process
from farandole.runs.origin import Origin


class ControlService:
    """Lets others, such as the panel, see and change a cluster through its driver; belongs to the driver's loop."""

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
        # Scales run one after another. Of several that wait, here or for the running cell, only the last takes effect.
        self._scale_lock = asyncio.Lock()
        # `end` waits for a stop in progress, which would leave workers behind if it were cancelled half-way.
        self._stop_lock = asyncio.Lock()
        self._error: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._mailbox = Mailbox(
            runner.store.folder,
            self._describe,
            {"scale": self._scale, "stop": self._stop, "stop_run": self._stop_run},
        )

    async def begin(self) -> None:
        """Serve the mailbox from now on."""
        self._task = asyncio.create_task(self._mailbox.serve(), name="mailbox")

    @property
    def wanted(self) -> int | None:
        """The requested number of workers while a scale is in progress, else None."""
        return None if self._scale_request is None else int(self._scale_request["workers"])

    async def end(self) -> None:
        """Remove the mailbox and cancel the requests that are being handled."""
        if self._task is not None:
            async with self._stop_lock:
                self._task.cancel()
                await asyncio.wait([self._task])

    def _describe(self) -> dict[str, Any]:
        core = self._core
        return {
            "cluster": core.name,
            "local": self._local,
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
        }

    async def _scale(self, request: Mapping[str, Any]) -> None:
        """Scale the cluster to the number of workers in a request."""
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

    async def _stop(self, _request: Mapping[str, Any]) -> None:
        """Stop the cluster and interrupt its running cell. Cells that are waiting or start later fail with an error."""
        core = self._core
        core.check_not_ended()
        self._progress(f"cluster {core.name!r} is being stopped from the panel")
        async with self._stop_lock:
            # Set first, because waiting and new requests must not start workers that nothing would stop.
            core.ended = f"cluster {core.name!r} was stopped from the panel. `%cluster start` starts another."
            try:
                if core.busy:
                    await self._interrupt(self._runner.going)
                await core.stop()
            except BaseException as exc:
                core.ended, self._error = "", str(exc) or None
                raise

    async def _stop_run(self, request: Mapping[str, Any]) -> None:
        """Stop the run that a request names."""
        run = str(request["run"])
        if run not in self._runner.going:
            raise UsageError(f"run {run} is not in progress here")
        self._progress(f"run {run} is being stopped from the panel")
        await self._interrupt([run])

    async def _interrupt(self, runs: list[str]) -> None:
        """Stop the running cell and wait a while until its run has ended, so that its files contain the end."""
        await self._core.interrupt()
        if self._core.ended:
            # A cell that waits for new ranks has no rank to interrupt.
            await self._core.break_off_starts()
        give_up = time.monotonic() + STOP_SECONDS
        while set(runs) & set(self._runner.going) and time.monotonic() < give_up:  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(0.05)
