"""The cells of a cluster and the runs among them: how they are begun, led, taken up again and ended."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from farandole.driver.background import BackgroundRun, Watch
from farandole.driver.checkpoints import to_resume
from farandole.driver.core import ClusterCore
from farandole.driver.errors import rank_error
from farandole.driver.group import call
from farandole.driver.kernels import Reply, Sink
from farandole.driver.logs import RankLogs
from farandole.driver.loop import LoopThread
from farandole.driver.output import Block
from farandole.driver.reattach import FoundRun, about, find_runs, told_again, until_caught_up
from farandole.driver.runs import RankStatus, Run, RunInfo
from farandole.driver.screen import Screen, Show
from farandole.driver.store import RunStore
from farandole.driver.workers import Progress
from farandole.exceptions import RankError
from farandole.protocol import Status

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
        self._runs: dict[str, Run] = {}

    def run(self, code: str, *, ranks: Sequence[int] | None, show: Show | None) -> list[Block]:
        """Execute a cell that is no run and return its output; see `Cluster.run`."""
        shown: list[Block] = []
        screen = Screen(list(range(self._size)) if ranks is None else list(ranks), show or shown.append)
        work = self._core.run(code, ranks, self._sink(screen, None), self._progress)
        self._raise_for(self._call(work, pump=screen.pump, screen=screen))
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
    ) -> Run:
        """Execute a training cell as a run; see `Cluster.train`."""
        source = None if resume is None else to_resume(self.store, resume, name=name)
        if backend is not None:
            self._loop.call(self._core.use(backend))
        self._loop.call(self._core.mend(self._progress))
        run = self._new_run(code, name, options, source)
        if detach:
            background = BackgroundRun(run)
            self._go_on(background, self._work(run, background.screen), watch)
        else:
            self._lead(run, show or _ignore, watch)
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
        """Take up the runs that the workers have on record and whose end the store does not know."""
        workers = [crew.worker for crew in self._core.crews]
        for found in self._loop.call(find_runs(workers)):
            if found.is_news(self.store):
                self._take_up(found)

    def hear(self, rank: int, data: dict[str, Any], _buffers: Sequence[bytes]) -> None:
        """Take in what a rank says in a run; what is no matter of a run is left out."""
        if (run := self._runs.get(data["run"])) is not None:
            for record in data["records"]:
                run.add_record(rank, record)

    @property
    def _size(self) -> int:
        return len(self._core.group.kernels)

    def _lead(self, run: Run, show: Show, watch: Watch | None) -> None:
        refresh = _nothing
        screen = Screen(list(range(self._size)), show)

        def pump() -> None:
            screen.pump()
            refresh()

        try:
            if watch is not None:
                refresh = watch(run)
            self._check_end(run, self._call(self._work(run, screen), pump=pump, screen=screen))
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
            self._core.group.control(call("versions"), what="asking for versions", timeout=30, kernels=kernels[:1])
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
        )
        self._runs[run.id] = run
        return run

    def _work(self, run: Run, screen: Screen) -> Coroutine[Any, Any, list[Reply]]:
        resume = str(self.store.folder / run.resumed_from) if run.resumed_from else ""
        return self._core.run(
            run.code,
            None,
            self._sink(screen, run),
            self._progress,
            before=call("begin", run.id, str(run.folder), resume),
            after=call("end"),
            mark={"run": run.id, "about": about(run)},
        )

    def _go_on(
        self,
        background: BackgroundRun,
        work: Coroutine[Any, Any, list[Reply]],
        watch: Watch | None = None,
        ended: float | None = None,
    ) -> None:
        run = background.run
        self._runs[run.id], self.background[run.id] = run, background
        if watch is not None:
            background.watch(watch)
        self._loop.call(background.begin(work, check=self._check_end, fail=self._finish_badly, ended=ended))

    def _take_up(self, found: FoundRun) -> None:
        # A driver that still leads it writes its files, and releases its ranks itself.
        led = found.is_led(self.store)
        run, readers = told_again(found, self.store, write=not led), found.readers(self.hear)
        background = BackgroundRun(run)
        sink, together = self._sink(background.screen, run), not led and run.backend != "none"
        self._go_on(background, self._core.follow(readers, sink, together=together), ended=found.ended)
        if not self._loop.call(until_caught_up(readers, CATCH_UP_SECONDS)):
            self._progress(f"run {run.id} has so much on record that its beginning is still being read")
        self._loop.call(background.flush())

    def _sink(self, screen: Screen, run: Run | None) -> Sink:
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
