"""Records a job of `Cluster.map_batches` as a run, and shows its progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from farandole.batches.parts import PartResult
from farandole.driver.batches.manifest import ERRORS, OutputFolder
from farandole.driver.batches.plan import BatchPlan
from farandole.driver.batches.progress import BatchProgress
from farandole.driver.batches.stages import source_code
from farandole.driver.cells.relay import Watch
from farandole.driver.core.core import ClusterCore
from farandole.driver.elastic.run import RunCallbacks
from farandole.driver.workers.worker import Progress
from farandole.protocol import Kind, Status
from farandole.runs.model import RankStatus
from farandole.runs.run import Run
from farandole.runs.store import RunStore


class BatchRun:
    """Records a job as a run. Until `create`, there is no run, and only `callbacks` may be used."""

    def __init__(self, core: ClusterCore, store: RunStore, progress: Progress, watch: Watch | None) -> None:
        self.run: Run | None = None
        self._core = core
        self._store = store
        self._say = progress
        self._watch = watch
        self._progress: BatchProgress | None = None
        self._refresh: Callable[[], None] = lambda: None

    def create(self, plan: BatchPlan) -> Run:
        """Begin the run with the current ranks of the cluster. This writes files."""
        core, request = self._core, plan.request
        self.run = self._store.create(
            code=source_code(plan.stages),
            name=request.run_name,
            cluster=core.name,
            backend=core.backend,
            size=len(core.group.kernels),
            workers=[kernel.worker.name for kernel in core.group.kernels],
            config={"batch_size": request.batch_size, "part_rows": plan.part_rows},
            options={"map_batches": {"to": str(request.folder), "source": plan.input.identity}},
            versions=core.software.packages,
            data_sets=core.software.data_sets,
            origin=request.origin,
        )
        return self.run

    def callbacks(self) -> RunCallbacks:
        """Return callbacks for notices, and for changes of the ranks."""

        def notice(text: str, *, warning: bool = False) -> None:
            if self.run is not None:
                self.run.notice(text, warning=warning)
            self._say(text)

        def assigned(workers: Sequence[str]) -> None:
            if self.run is not None and tuple(workers) != self.run.info.workers:
                self.run.assign_ranks(workers)

        return RunCallbacks(notice=notice, assigned=assigned)

    def show_ranks(self) -> None:
        """Record which ranks are alive."""
        if self.run is not None:
            for kernel in self._core.group.kernels:
                self.run.set_rank_state(kernel.rank, "running" if kernel.alive else "dead")

    def begin_progress(self, run: Run, folder: OutputFolder) -> None:
        """Show the run. Must be called on the thread of the cell, as the methods below."""
        # A display of the run has its progress, so no lines are printed beside it.
        say = self._say if self._watch is None else _ignore
        self._progress = BatchProgress(run, say, total=len(folder.parts), done=len(folder.done))
        if self._watch is not None:
            self._refresh = self._watch(run)

    def add(self, rank: int, result: PartResult) -> None:
        """Count a part that a rank has computed."""
        if self._progress is not None:
            self._progress.add(rank, result)

    def show(self, *, last: bool = False) -> None:
        """Show the progress."""
        if self._progress is not None:
            self._progress.show(last=last)
        self._refresh()

    def finish(self, folder: OutputFolder) -> None:
        """End the run, whose output is complete."""
        about = {"rows": folder.rows, "parts": len(folder.files), "skipped": len(folder.skipped)}
        if self.run is not None:
            if folder.skipped:
                text = f"{len(folder.skipped):,} records were left out; see {folder.folder / ERRORS}"
                self.run.notice(text, warning=True)
            self.run.add_records(0, {"kind": Kind.RESULT, "value": {"folder": str(folder.folder), **about}})
        self._end("done", Status.FINISHED)

    def fail(self, error: BaseException, *, stopped: bool) -> None:
        """End the run, whose output is not complete, by an error or because the user has ``stopped`` it."""
        text = str(error) or type(error).__name__
        if stopped:
            self._end("stopped", Status.INTERRUPTED, text)
        else:
            self._end("failed", Status.FAILED, text)

    def _end(self, state: RankStatus, status: Status, error: str | None = None) -> None:
        if self.run is None:
            return
        self._core.router.runs.pop(self.run.id, None)
        self.show(last=True)
        for view in self.run.ranks():
            if view.state == "running":
                self.run.set_rank_state(view.rank, state)
        self.run.finish(status, error)
        self._refresh()


def _ignore(_text: str) -> None:
    return None
