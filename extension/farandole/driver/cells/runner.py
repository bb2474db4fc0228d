"""Executes the cells of a cluster, manages its runs, and takes over runs that another driver began."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from farandole.driver.cells.background import BackgroundRun
from farandole.driver.cells.home import admit_run
from farandole.driver.cells.models import ModelSaver
from farandole.driver.cells.place import place_of
from farandole.driver.cells.relay import Backlog, OutputRelay, RunView, Show, Watch
from farandole.driver.cells.shutdown import shutdown_follows
from farandole.driver.core.core import ClusterCore
from farandole.driver.elastic.run import ElasticCell, RunCallbacks
from farandole.driver.elastic.takeover import AdoptedRun, JournalReplay
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.errors import rank_error
from farandole.driver.kernels.group import Cell
from farandole.driver.kernels.outages import OutageNotices
from farandole.driver.kernels.replies import Reply, Sink
from farandole.driver.kernels.waits import WaitHints
from farandole.driver.loop import Errand, LoopThread, in_thread
from farandole.driver.options import Elastic
from farandole.driver.output import Block
from farandole.driver.recovery.orphaned_runs import OrphanedWorker, complete, orphaned_workers
from farandole.driver.recovery.reattach import (
    FoundRun,
    RunReader,
    about,
    find_runs,
    follow_to_end,
    is_led,
    restore_run,
    until_caught_up,
)
from farandole.driver.workers.worker import Progress
from farandole.exceptions import RankError, RunNotFoundError
from farandole.hyperparameters import Hyperparameter
from farandole.protocol import Status
from farandole.runs.logs import RankLogs
from farandole.runs.model import RankStatus, RunInfo
from farandole.runs.origin import Origin, origin
from farandole.runs.positions import JournalPosition
from farandole.runs.run import Run
from farandole.runs.store import RunStore

CATCH_UP_SECONDS = 30.0
"""How many seconds `attach` spends on reading the earlier messages of each run. The rest is read in the background."""
STOP_SECONDS = 15.0
"""How many seconds a stopped run may take to end."""
NOT_BEGUN = "interrupted before its cell began"
RANK_STATES: dict[str, RankStatus] = {"ok": "done", "error": "failed", "dead": "dead"}


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The arguments of `Cluster.train` that define the run. ``origin`` is the notebook cell that called the method."""

    code: str
    name: str | None = None
    backend: str | None = None
    config: Mapping[str, Hyperparameter] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    resume: str | None = None
    elastic: Elastic | None = None
    origin: Origin = field(default_factory=origin)


class CellRunner:
    """Executes the cells of one cluster.

    The public methods must not be called on the loop's thread, and the coroutines run on the loop. A training
    cell reserves the cluster with `ClusterCore.cell` before its run is created, and releases the cluster after the last
    reply.
    """

    def __init__(
        self,
        core: ClusterCore,
        loop: LoopThread,
        store: RunStore,
        *,
        logs: RankLogs,
        progress: Progress,
        local: bool = False,
    ) -> None:
        self.background: dict[str, BackgroundRun] = {}
        self._core = core
        self._loop = loop
        self.store = store
        self._logs = logs
        self._progress = progress
        self._local = local
        self._runs = core.router.runs
        self._models = ModelSaver(core, loop, progress)

    def run(self, code: str, *, ranks: Sequence[int] | None, show: Show | None) -> list[Block]:
        """Execute a cell that does not create a run, and return the output. See `Cluster.run`."""
        backlog = Backlog()
        relay = OutputRelay(list(range(self._size)) if ranks is None else list(ranks), show or backlog.add)
        cell = Cell(code=code, sink=self._sink(relay, None), place=place_of(code))
        try:
            # A sentence that the loop's thread prints would appear in the cell that started the cluster.
            hint = self._progress if show is None else relay.add_note
            work = self._watched(self._core.run(cell, ranks, self._progress), hint, hint)
            self._raise_for(self._loop.call(work, on_interrupt=self._core.interrupt, pump=relay.pump))
        finally:
            relay.pump(flush=True)
        return backlog.take()

    def train(
        self, request: TrainRequest, *, show: Show | None = None, watch: Watch | None = None, detach: bool = False
    ) -> Run:
        """Execute a training cell as a run. See `Cluster.train`."""
        source = None if request.resume is None else self.store.to_resume(request.resume, name=request.name)
        if not detach:
            return self._train_here(request, source, RunView(show or _ignore, watch))
        errand = Errand()
        work = self._detach(request, source, watch, errand)
        return self._loop.call(work, pump=errand.pump, wake=errand.wake).run

    def stop(self, run_id: str) -> Run:
        """Stop a run in the `background` on all ranks, wait for its end, and return the run.

        Raises:
            DeadlineError: the run has not ended after `STOP_SECONDS`.
        """
        background = self.background[run_id]
        if not background.run.status.ended:
            self._loop.call(self._core.interrupt())
        with suppress(RankError):
            background.run.wait(STOP_SECONDS)
        return background.run

    def let_go(self) -> None:
        """Stop following the runs in the `background`. The runs themselves continue."""
        for background in self.background.values():
            self._loop.call(background.let_go())

    def take_up(self) -> None:
        """Take over the runs in the workers' journals, except runs whose end is already recorded in the store."""
        self._loop.call(self._take_up_all(orphaned_workers(self.store, self._core.name)))

    def complete(self) -> None:
        """Complete the runs of a cluster that has no workers left, using the journals that the workers persisted."""
        for run in complete(self.store, cluster=self._core.name):
            self._progress(
                f"run {run.id} is {run.status}, as its workers recorded before they ended; see `%runs show {run.id}`"
            )

    @property
    def going(self) -> list[str]:
        """The ids of the runs that have not ended."""
        return [run.id for run in list(self._runs.values()) if not run.status.ended]

    @property
    def _size(self) -> int:
        return len(self._core.group.kernels)

    def _train_here(self, request: TrainRequest, source: RunInfo | None, view: RunView) -> Run:
        try:
            work = self._train(request, source, view)
            self._loop.call(
                work, on_interrupt=partial(self._stop_or_leave, view), pump=view.pump, wake=view.errand.wake
            )
            view.run.finish(Status.FINISHED)
        except BaseException as exc:
            if view.begun and not view.left:
                self._finish_badly(view.run, exc)
            raise
        finally:
            if view.begun:
                # The reports of a run that is left must be received until the process ends, just as its logs are:
                # positions.json counts the messages of both.
                if not view.left:
                    del self._runs[view.run.id]
                view.pump(flush=True)
        return view.run

    async def _stop_or_leave(self, view: RunView) -> bool:
        """Stop the run at the user's request. If the kernel is being shut down, leave the run and return True.

        A run that is left continues, as it does after its kernel was killed. It is not cancelled, because the cleanup
        of an elastic run would stop its ranks. The workers of a local cluster end with the kernel, so its runs are
        stopped.
        """
        view.left = not self._local and await shutdown_follows()
        if not view.left:
            await self._core.interrupt()
        return view.left

    async def _train(self, request: TrainRequest, source: RunInfo | None, view: RunView) -> None:
        async with self._core.cell(self._progress, backend=request.backend):
            run = await self._begin(request, source)
            self._check_end(run, await self._work(run, await view.begin(run), request.elastic))

    async def _detach(
        self, request: TrainRequest, source: RunInfo | None, watch: Watch | None, errand: Errand
    ) -> BackgroundRun:
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._core.cell(self._progress, backend=request.backend))
            run = await self._begin(request, source)
            background = BackgroundRun(run)
            try:
                # `watch` is called before the cell begins, so that the dashboard does not miss the first reports.
                if watch is not None:
                    await errand.run(partial(background.watch, watch))
            except asyncio.CancelledError:
                await asyncio.to_thread(run.finish, Status.INTERRUPTED, NOT_BEGUN)
                raise
            # The background task inherits the lock. If this task released it first, a `scale` call could change
            # the cluster before the background task acquired the lock, and the size in run.json would be wrong.
            work = _releasing(held.pop_all(), self._work(run, background.relay, request.elastic))
            await self._go_on(background, work)
        return background

    async def _begin(self, request: TrainRequest, source: RunInfo | None) -> Run:
        """Create a run for the current ranks of the cluster. The caller must have reserved the cluster."""
        size, backend = self._size, self._core.backend
        if request.elastic is not None:
            request.elastic.check(code=request.code, size=size, backend=backend)
        warning = await admit_run(self._core)
        create = partial(
            self.store.create,
            code=request.code,
            name=request.name,
            cluster=self._core.name,
            backend=backend,
            size=size,
            workers=[kernel.worker.name for kernel in self._core.group.kernels],
            config=request.config,
            options=request.options,
            versions=self._core.software.packages,
            data_sets=self._core.software.data_sets,
            resumed_from=source.id if source else None,
            origin=request.origin,
        )
        # The call runs in a thread, because the volume may be slow. It is not cancelled, because that would leave
        # behind a run that never ends.
        creating = asyncio.ensure_future(asyncio.to_thread(create))
        try:
            run = await asyncio.shield(creating)
        except asyncio.CancelledError:
            await asyncio.to_thread((await creating).finish, Status.INTERRUPTED, NOT_BEGUN)
            raise
        self._runs[run.id] = run
        self._models.newest = run.id
        self._models.attach(run)
        if warning:
            self._callbacks(run).warn(warning)
        return run

    def _cell(self, run: Run, sink: Sink, elastic: Elastic | None) -> Cell:
        resume = str(self.store.folder / run.resumed_from) if run.resumed_from else ""
        rule = elastic.lr_rule if elastic is not None else ""
        return Cell(
            code=_code(run),
            sink=sink,
            before=rank_calls.begin(run.id, str(run.folder), resume, rule, run.info.overrides),
            after=rank_calls.end(),
            mark={"run": run.id, "about": about(run, elastic)},
            place=place_of(run.code),
        )

    def _work(self, run: Run, relay: OutputRelay, elastic: Elastic | None) -> Coroutine[Any, Any, list[Reply]]:
        cell, callbacks = self._cell(run, self._sink(relay, run), elastic), self._callbacks(run)
        if elastic is None:
            work = self._core.execute(cell, notice=callbacks.notice)
        else:
            work = self._core.lead(ElasticCell(self._core, cell, elastic, callbacks))
        return self._watched(work, callbacks.warn, callbacks.notice)

    def _watched(
        self, work: Coroutine[Any, Any, list[Reply]], hint: Progress, notice: Progress
    ) -> Coroutine[Any, Any, list[Reply]]:
        """Return a coroutine that executes a cell, and says which ranks wait for others and when the hub is silent."""
        core = self._core
        hinted = WaitHints(core.group, hint, backend=lambda: core.backend).during(work)
        return OutageNotices(core.group, notice).during(hinted)

    def _callbacks(self, run: Run) -> RunCallbacks:
        def notice(text: str, *, warning: bool = False) -> None:
            run.notice(text, warning=warning)
            self._progress(text)

        return RunCallbacks(notice=notice, assigned=run.assign_ranks)

    async def _go_on(
        self, background: BackgroundRun, work: Coroutine[Any, Any, list[Reply]], *, ended: float | None = None
    ) -> None:
        run = background.run
        self._runs[run.id], self.background[run.id] = run, background
        await background.begin(work, check=self._check_end, fail=self._finish_badly, ended=ended)

    async def _take_up_all(self, gone: Sequence[OrphanedWorker]) -> None:
        for found in await find_runs([*(handle.worker for handle in self._core.handles), *gone]):
            self._models.newest = found.id
            if await in_thread(partial(found.is_news, self.store)):
                await self._take_up(found)

    async def _take_up(self, found: FoundRun) -> None:
        # If another driver leads the run, then that driver writes the run's files and releases the ranks.
        led, readers = await is_led(found, self.store), found.readers(self._core.router.to_run)
        try:
            background = BackgroundRun(await in_thread(partial(restore_run, found, self.store, write=not led)))
        except RunNotFoundError as exc:
            self._progress(str(exc))
            return
        if not led:
            self._models.attach(background.run)
        await self._go_on(background, self._continued(found, background, readers, led=led), ended=found.ended)
        if not await until_caught_up(readers, CATCH_UP_SECONDS):
            self._progress(f"run {found.id} has a long journal; its beginning is still being read")
        await background.flush()

    def _continued(
        self, found: FoundRun, background: BackgroundRun, readers: Sequence[RunReader], *, led: bool
    ) -> Coroutine[Any, Any, list[Reply]]:
        """Return the coroutine that follows a run to its end.

        For an elastic run without another driver, the coroutine also supervises the run.
        """
        run, callbacks = background.run, self._callbacks(background.run)
        sink = self._sink(background.relay, run)
        if found.elastic is None:
            if led:
                return self._core.follow(readers, sink, together=False)
            together = run.backend != "none"
            work = self._core.follow(readers, sink, together=together, notice=callbacks.notice)
            return self._watched(work, callbacks.warn, callbacks.notice)
        if led or found.ended is not None:
            return follow_to_end(readers, sink)
        self._core.use(run.backend)
        replay = JournalReplay(readers=readers, workers=run.info.workers)
        cell = self._cell(run, sink, found.elastic)
        adopted = AdoptedRun(self._core, cell, found.elastic, callbacks, replay)
        return self._watched(self._core.take_over(adopted), callbacks.warn, callbacks.notice)

    def _sink(self, relay: OutputRelay, run: Run | None) -> Sink:
        def take(rank: int, kind: str, content: dict[str, Any], position: JournalPosition | None) -> None:
            relay.put(rank, kind, content)
            if kind == "stream":
                self._logs.add(rank, content["text"])
                if run is not None:
                    run.add_log(rank, content["text"], position, content["printed"])

        return take

    def _check_end(self, run: Run, replies: Sequence[Reply]) -> None:
        for reply in replies:
            stopped = self._core.group.interrupted and reply.status == "error"
            run.set_rank_state(reply.rank, "stopped" if stopped else RANK_STATES[reply.status])
        self._raise_for(replies, {view.rank: view.advice for view in run.ranks()})
        if not replies:
            raise RankError("the cell ended on no rank, so its outcome is unknown; run it again")

    def _raise_for(self, replies: Sequence[Reply], advice: Mapping[int, str] | None = None) -> None:
        """Raise the error for a cell that failed or was stopped."""
        if self._core.group.interrupted:
            raise RankError("the cell was stopped on all ranks")
        if any(reply.status != "ok" for reply in replies):
            raise rank_error(replies, advice=advice)

    def _finish_badly(self, run: Run, exc: BaseException, ended: float | None = None) -> None:
        stopped = isinstance(exc, KeyboardInterrupt) or self._core.group.interrupted
        for view in run.ranks():
            if view.state == "running":
                run.set_rank_state(view.rank, "stopped" if stopped else "failed")
        status = Status.INTERRUPTED if stopped else Status.FAILED
        run.finish(status, str(exc) or type(exc).__name__, ended=ended)


async def _releasing(held: AsyncExitStack, work: Coroutine[Any, Any, list[Reply]]) -> list[Reply]:
    async with held:
        return await work


def _code(run: Run) -> str:
    """Return what the ranks execute: the run's code or, if it comes from a file, a call that executes it as that file.

    The option ``script`` of a run contains the path of the file and its arguments.
    """
    if not (script := run.info.options.get("script")):
        return run.code
    path, *arguments = script
    # The kernel would display the value of an expression.
    return f"if {rank_calls.run_script(run.code, path, arguments).expression}: pass"


def _ignore(_block: Block) -> None:
    return None
