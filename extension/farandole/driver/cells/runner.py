"""The cells of a cluster and the runs among them: how they are begun, led, taken up again and ended."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from farandole.driver.cells.background import BackgroundRun, Watch
from farandole.driver.cells.screen import Screen, Show
from farandole.driver.core.core import ClusterCore
from farandole.driver.elastic.run import ElasticCell, RunCallbacks
from farandole.driver.elastic.takeover import AdoptedRun, JournalReplay
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.errors import rank_error
from farandole.driver.kernels.group import Cell
from farandole.driver.kernels.replies import Reply, Sink
from farandole.driver.loop import LoopThread
from farandole.driver.options import Elastic
from farandole.driver.output import Block
from farandole.driver.recovery.orphaned_runs import complete, gone_workers
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
from farandole.driver.recovery.replay import Replay, trim
from farandole.driver.workers.worker import Progress
from farandole.exceptions import RankError
from farandole.protocol import Status
from farandole.runs.logs import RankLogs
from farandole.runs.model import RankStatus, RunInfo
from farandole.runs.origin import origin
from farandole.runs.run import Run
from farandole.runs.store import RunStore

CATCH_UP_SECONDS = 30.0
STOP_SECONDS = 15.0
RANK_STATES: dict[str, RankStatus] = {"ok": "done", "error": "failed", "dead": "dead"}


class Training:
    """Executes the cells of one cluster for callers on other threads than its loop's."""

    def __init__(
        self, core: ClusterCore, loop: LoopThread, store: RunStore, *, logs: RankLogs, progress: Progress
    ) -> None:
        self.background: dict[str, BackgroundRun] = {}
        self._core = core
        self._loop = loop
        self.store = store
        self._logs = logs
        self._progress = progress
        self._runs: dict[str, Run | Replay] = {}

    def run(self, code: str, *, ranks: Sequence[int] | None, show: Show | None) -> list[Block]:
        """Execute a cell that is no run and return its output; see `Cluster.run`."""
        shown: list[Block] = []
        screen = Screen(list(range(self._size)) if ranks is None else list(ranks), show or shown.append)
        cell = Cell(code=code, sink=self._sink(screen, None))
        self._raise_for(self._call(self._core.run(cell, ranks, self._progress), pump=screen.pump, screen=screen))
        return shown

    def train(
        self,
        code: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        options: Mapping[str, Any] | None = None,
        resume: str | None = None,
        show: Show | None = None,
        watch: Watch | None = None,
        detach: bool = False,
        elastic: Elastic | None = None,
    ) -> Run:
        """Execute a training cell as a run; see `Cluster.train`."""
        source = None if resume is None else self.store.to_resume(resume, name=name)
        if backend is not None:
            self._loop.call(self._core.use(backend))
        self._loop.call(self._core.reconcile(self._progress))
        if elastic is not None:
            elastic.check(code=code, size=self._size, backend=self._core.backend)
        run = self._new_run(code, name, options, source)
        if detach:
            background = BackgroundRun(run)
            self._go_on(background, self._work(run, background.screen, elastic), watch)
        else:
            self._lead(run, show or _ignore, watch, elastic)
        return run

    def stop(self, run_id: str) -> Run:
        """Stop a run of the `background` on all ranks and return it once it has ended."""
        background = self.background[run_id]
        if not background.run.status.ended:
            self._loop.call(self._core.interrupt())
        with suppress(RankError):
            background.run.wait(STOP_SECONDS)
        return background.run

    def let_go(self) -> None:
        """Leave the runs of the `background` to themselves."""
        for background in self.background.values():
            self._loop.call(background.let_go())

    def take_up(self) -> None:
        """Take up the runs whose end the store does not know, and which workers have on record, or have left."""
        workers = [*(crew.worker for crew in self._core.crews), *gone_workers(self.store, self._core.name)]
        for found in self._loop.call(find_runs(workers)):
            if found.is_news(self.store):
                self._take_up(found)

    def complete(self) -> None:
        """Tell the runs of a cluster of which no worker is left, by what its workers have left."""
        for run in complete(self.store, cluster=self._core.name):
            self._progress(
                f"run {run.id} is {run.status}: so its workers, which are gone, left it; see `%runs show {run.id}`"
            )

    def hear(self, rank: int, data: dict[str, Any], _buffers: Sequence[bytes]) -> None:
        """Take in what a rank says in a run."""
        if (run := self._runs.get(data["run"])) is not None:
            for record in data["records"]:
                run.add_record(rank, record)

    @property
    def going(self) -> list[str]:
        """The ids of the runs that go on."""
        runs = list(self._runs.items())
        return [key for key, run in runs if not (run.run if isinstance(run, Replay) else run).status.ended]

    @property
    def _size(self) -> int:
        return len(self._core.group.kernels)

    def _lead(self, run: Run, show: Show, watch: Watch | None, elastic: Elastic | None) -> None:
        refresh = _nothing
        screen = Screen(list(range(self._size)), show)

        def pump() -> None:
            screen.pump()
            refresh()

        try:
            if watch is not None:
                refresh = watch(run)
            self._check_end(run, self._call(self._work(run, screen, elastic), pump=pump, screen=screen))
        except BaseException as exc:
            self._finish_badly(run, exc)
            raise
        else:
            run.finish(Status.FINISHED)
        finally:
            del self._runs[run.id]
            refresh()

    def _call(self, work: Any, *, pump: Callable[[], None], screen: Screen) -> list[Reply]:
        try:
            replies: list[Reply] = self._loop.call(work, on_interrupt=self._core.interrupt, pump=pump)
        finally:
            screen.pump(flush=True)
        return replies

    def _new_run(self, code: str, name: str | None, options: Mapping[str, Any] | None, source: RunInfo | None) -> Run:
        kernels = self._core.group.kernels
        versions = self._loop.call(
            self._core.group.control(rank_calls.versions(), what="asking for versions", timeout=30, kernels=kernels[:1])
        )[0]
        run = self.store.create(
            code=code,
            name=name,
            cluster=self._core.name,
            backend=self._core.backend,
            size=self._size,
            workers=[kernel.worker.name for kernel in kernels],
            options=options,
            versions=versions,
            resumed_from=source.id if source else None,
            origin=origin(),
        )
        self._runs[run.id] = run
        return run

    def _cell(self, run: Run, sink: Sink, elastic: Elastic | None) -> Cell:
        resume = str(self.store.folder / run.resumed_from) if run.resumed_from else ""
        rule = elastic.lr_rule if elastic is not None else ""
        return Cell(
            code=run.code,
            sink=sink,
            before=rank_calls.begin(run.id, str(run.folder), resume, rule),
            after=rank_calls.end(),
            mark={"run": run.id, "about": about(run, elastic)},
        )

    def _work(self, run: Run, screen: Screen, elastic: Elastic | None) -> Coroutine[Any, Any, list[Reply]]:
        cell = self._cell(run, self._sink(screen, run), elastic)
        if elastic is None:
            return self._core.run(cell, None, self._progress, notice=self._told(run).notice)
        return self._core.run_elastic(ElasticCell(self._core, cell, elastic, self._told(run)), self._progress)

    def _told(self, run: Run) -> RunCallbacks:
        def notice(text: str) -> None:
            run.notice(text)
            self._progress(text)

        return RunCallbacks(notice=notice, seated=run.assign_ranks)

    def _go_on(
        self,
        background: BackgroundRun,
        work: Coroutine[Any, Any, list[Reply]],
        watch: Watch | None = None,
        *,
        ended: float | None = None,
        hears: Replay | None = None,
    ) -> None:
        run = background.run
        self._runs[run.id], self.background[run.id] = hears or run, background
        if watch is not None:
            background.watch(watch)
        self._loop.call(background.begin(work, check=self._check_end, fail=self._finish_badly, ended=ended))

    def _take_up(self, found: FoundRun) -> None:
        # A driver that still leads it writes its files, and releases its ranks itself.
        led, readers = self._loop.call(is_led(found, self.store)), found.readers(self.hear)
        if found.elastic is None or led:
            background = self._listen(found, readers, led=led)
        else:
            background = self._take_over(found, readers, found.elastic)
        if not self._loop.call(until_caught_up(readers, CATCH_UP_SECONDS)):
            self._progress(f"run {found.id} has so much on record that its beginning is still being read")
        self._loop.call(background.flush())

    def _listen(self, found: FoundRun, readers: Sequence[RunReader], *, led: bool) -> BackgroundRun:
        run = restore_run(found, self.store, write=not led)
        background = BackgroundRun(run)
        sink = self._sink(background.screen, run)
        if found.elastic is None:
            notice = None if led else self._told(run).notice
            work = self._core.follow(readers, sink, together=not led and run.backend != "none", notice=notice)
        else:
            work = follow_to_end(readers, sink)
        self._go_on(background, work, ended=found.ended)
        return background

    def _take_over(self, found: FoundRun, readers: Sequence[RunReader], elastic: Elastic) -> BackgroundRun:
        """Lead an elastic run whose driver is gone, or tell how it has ended."""
        trim(self.store.folder / found.id)
        run = self.store.go_on(found.about["run"], found.about["code"])
        again, background = Replay(run), BackgroundRun(run)
        sink = self._sink(background.screen, again)
        if found.ended is None:
            self._loop.call(self._core.use(run.backend))
            heard = JournalReplay(readers=readers, workers=run.info.workers, whole=again.end)
            cell = AdoptedRun(self._core, self._cell(run, sink, elastic), elastic, self._told(run), heard)
            work = self._core.take_over(cell)
        else:
            work = follow_to_end(readers, sink)
        self._go_on(background, work, ended=found.ended, hears=again)
        return background

    def _sink(self, screen: Screen, run: Run | Replay | None) -> Sink:
        def take(rank: int, kind: str, content: dict[str, Any]) -> None:
            screen.put(rank, kind, content)
            if kind == "stream":
                self._logs.add(rank, content["text"])
                if run is not None:
                    run.add_log(rank, content["text"])

        return take

    def _check_end(self, run: Run, replies: Sequence[Reply]) -> None:
        for reply in replies:
            stopped = self._core.group.interrupted and reply.status == "error"
            run.set_rank_state(reply.rank, "stopped" if stopped else RANK_STATES[reply.status])
        self._raise_for(replies)
        if not replies:
            raise RankError("the cell has ended on no rank, so nothing is known of its outcome; run it again")

    def _raise_for(self, replies: Sequence[Reply]) -> None:
        if self._core.group.interrupted:
            raise RankError("the cell was stopped on all ranks")
        if any(reply.status != "ok" for reply in replies):
            raise rank_error(replies)

    def _finish_badly(self, run: Run, exc: BaseException, ended: float | None = None) -> None:
        stopped = isinstance(exc, KeyboardInterrupt) or self._core.group.interrupted
        for view in run.ranks():
            if view.state == "running":
                run.set_rank_state(view.rank, "stopped" if stopped else "failed")
        status = Status.INTERRUPTED if stopped else Status.FAILED
        run.finish(status, str(exc) or type(exc).__name__, ended=ended)


def _nothing() -> None:
    return None


def _ignore(_block: Block) -> None:
    return None
