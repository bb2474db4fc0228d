"""Computes a job of `Cluster.map_batches` on the ranks of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client

from farandole.batches.parts import Part, PartResult
from farandole.driver.batches.dispatcher import Dispatcher
from farandole.driver.batches.manifest import OutputFolder
from farandole.driver.batches.output import BatchOutput
from farandole.driver.batches.plan import BatchPlan
from farandole.driver.batches.rank_keeper import RankKeeper
from farandole.driver.cells.batch_run import BatchRun
from farandole.driver.cells.home import admit_run
from farandole.driver.core.core import ClusterCore
from farandole.driver.data.engine import DataEngine
from farandole.driver.loop import LoopThread, in_thread
from farandole.driver.workers.worker import Progress
from farandole.exceptions import FarandoleError, RankError, UsageError
from farandole.runs.run import Run


class BatchJob:
    """Computes the parts that are missing.

    - The thread that calls `compute` sends the parts to the ranks and takes their results.
    - The core's event loop looks after the ranks. The cluster is reserved as for a cell.
    """

    def __init__(
        self,
        core: ClusterCore,
        engine: DataEngine,
        client: Client,
        *,
        plan: BatchPlan,
        folder: OutputFolder,
        run: BatchRun,
    ) -> None:
        self._core = core
        self._engine = engine
        self._plan = plan
        self._folder = folder
        self._run = run
        self._wake = threading.Event()
        self._keeper = RankKeeper(core, engine, run.callbacks(), self._set_workers)
        self._dispatcher = Dispatcher(
            client,
            plan.spec(),
            folder.missing,
            payload=plan.input.payload,
            target=folder.temporary,
            on_done=self._add,
            wake=self._wake,
        )
        self._begun = False
        self._complete = False
        """Whether the output is complete. Lost ranks may still be replaced for the next cell."""
        self._error: FarandoleError | None = None

    def compute(self, loop: LoopThread, progress: Progress) -> BatchOutput:
        """Compute the missing parts, and return the output.

        Raises:
            RankError: a stage failed, a part ended its ranks, or the user stopped the job. Complete parts are kept.
            UsageError: the home is full, the output folder cannot be written, or the source has no rows.
        """
        end = partial(loop.loop.call_soon_threadsafe, self._keeper.end)
        work, pump = self._work(progress), partial(self._pump, end)
        try:
            loop.call(work, on_interrupt=self._core.interrupt, pump=pump, wake=self._wake)
            self._raise_if_incomplete()
        except BaseException as exc:
            self._fail(exc)
            raise
        finally:
            self._dispatcher.close()
        self._run.finish(self._folder)
        return output_of(self._folder, self._run.run)

    async def _work(self, progress: Progress) -> None:
        async with self._core.cell(progress):
            warning = await admit_run(self._core)
            await in_thread(self._folder.begin)
            run = await in_thread(partial(self._run.create, self._plan))
            if warning:
                self._run.callbacks().warn(warning)
            self._core.router.runs[run.id] = run
            await self._core.lead(self._keeper)

    def _pump(self, end: Callable[[], Any]) -> None:
        """Take parts from the ranks and give them new ones. Call ``end`` after the last part, or after an error."""
        if self._run.run is None or self._is_over:
            return
        if not self._begun:
            self._begun = True
            self._run.begin_progress(self._run.run, self._folder)
        try:
            self._dispatcher.advance()
            if self._dispatcher.done:
                finish(self._folder)
                self._complete = True
        except FarandoleError as exc:
            self._error = exc
        if self._is_over:
            end()
        self._run.show()

    @property
    def _is_over(self) -> bool:
        return self._error is not None or self._complete

    def _add(self, part: Part, result: PartResult, target: Path, rank: int) -> None:
        self._folder.add(part, result, target)
        self._run.add(rank, result)

    def _set_workers(self, workers: Mapping[str, int]) -> None:
        """Set the Dask workers, on the event loop."""
        changed = workers != self._dispatcher.workers
        self._dispatcher.left = frozenset(self._engine.left)
        self._dispatcher.workers = workers
        self._run.show_ranks()
        if changed:
            self._wake.set()

    def _raise_if_incomplete(self) -> None:
        if self._error is not None:
            raise self._error
        if not self._complete:
            raise RankError(
                "the job was stopped. Its complete parts are kept, and map_batches continues if you call it again with "
                "the same arguments"
            )

    def _fail(self, error: BaseException) -> None:
        if self._complete:
            # Only the replacement of lost ranks has ended early.
            self._run.finish(self._folder)
            return
        with suppress(OSError):
            self._folder.write()
        stopped = isinstance(error, KeyboardInterrupt) or (self._error is None and self._keeper.stopped)
        self._run.fail(error, stopped=stopped)


def finish(folder: OutputFolder) -> None:
    """Write what a folder whose parts are all complete has besides them.

    Raises UsageError if it cannot be written, or if there is no row at all. Then the parts do not count as complete.
    """
    if not folder.rows and not folder.skipped:
        folder.done.clear()
        folder.begin()
        raise UsageError("the data frame has no rows. Check how it was filtered")
    folder.finish()


def output_of(folder: OutputFolder, run: Run | None) -> BatchOutput:
    """Return the output of a job whose parts are all complete."""
    return BatchOutput(
        folder=folder.folder, parts=tuple(folder.files), rows=folder.rows, skipped=tuple(folder.skipped), run=run
    )
