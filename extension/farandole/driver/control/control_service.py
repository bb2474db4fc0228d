"""What a driver tells about its cluster and what others may ask of it; the mailbox carries both."""

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
from farandole.runs.origin import Origin
from farandole.runs.store import this_process


class ControlService:
    """A cluster as its driver leads it, open to others; belongs to the driver's loop."""

    def __init__(
        self, core: ClusterCore, runner: CellRunner, *, local: bool, where: Origin, progress: Progress
    ) -> None:
        self._core = core
        self._runner = runner
        self._local = local
        self._where = where
        self._progress = progress
        self._driver = this_process()
        self._since = time.time()
        self._asked: Mapping[str, Any] | None = None
        # Of several that ask for another size the last one has its way; the others wait here, or for the cell.
        self._scaling = asyncio.Lock()
        # Who lets go of the cluster waits here for a stop: broken off half-way it would leave workers behind.
        self._stopping = asyncio.Lock()
        self._error: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._desk = Mailbox(
            runner.store.folder,
            self._describe,
            {"scale": self._scale, "stop": self._stop, "stop_run": self._stop_run},
        )

    async def begin(self) -> None:
        """Serve at the desk from now on."""
        self._task = asyncio.create_task(self._desk.serve(), name="desk")

    @property
    def wanted(self) -> int | None:
        """The number of workers that others have asked for and that are not there yet."""
        return None if self._asked is None else int(self._asked["workers"])

    async def end(self) -> None:
        """Clear the desk away, and with it what is still being done."""
        if self._task is not None:
            async with self._stopping:
                self._task.cancel()
                await asyncio.wait([self._task])

    def _describe(self) -> dict[str, Any]:
        core = self._core
        return {
            "cluster": core.name,
            "local": self._local,
            "backend": core.backend,
            "notebook": self._where.notebook,
            "kernel": self._where.kernel,
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
        workers = int(request["workers"])
        if workers < 1:
            raise UsageError(f"a cluster needs at least 1 worker, not {workers}; stop it instead")
        self._core.check_not_ended()
        self._asked, self._error = request, None
        try:
            async with self._scaling:
                if self._asked is request:
                    await self._core.scale(workers, self._progress, wanted=lambda: self._asked is request)
        except FarandoleError as exc:
            self._error = str(exc)
            raise
        finally:
            if self._asked is request:
                self._asked = None

    async def _stop(self, _request: Mapping[str, Any]) -> None:
        core = self._core
        core.check_not_ended()
        self._progress(f"cluster {core.name!r} is being stopped from the panel")
        async with self._stopping:
            # Said first: what waits for the cell, or comes meanwhile, must start no workers that nobody would stop.
            core.ended = f"cluster {core.name!r} was stopped from the panel. `%cluster start` starts another."
            try:
                if core.busy:
                    await self._interrupt(self._runner.going)
                await core.stop()
            except BaseException as exc:
                core.ended, self._error = "", str(exc) or None
                raise

    async def _stop_run(self, request: Mapping[str, Any]) -> None:
        run = str(request["run"])
        if run not in self._runner.going:
            raise UsageError(f"run {run} is not in progress here")
        self._progress(f"run {run} is being stopped from the panel")
        await self._interrupt([run])

    async def _interrupt(self, runs: list[str]) -> None:
        """Stop the cell that runs, and wait a while for the end of its run: its files say how it has ended."""
        await self._core.interrupt()
        if self._core.ended:
            # A cell that waits for its ranks has nothing to be interrupted.
            await self._core.break_off_starts()
        give_up = time.monotonic() + STOP_SECONDS
        while set(runs) & set(self._runner.going) and time.monotonic() < give_up:  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(0.05)
