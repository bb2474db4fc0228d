"""The one thing that users hold: a cluster, with a synchronous face over `ClusterCore`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

import aiohttp

from farandole.driver.checkpoints import to_resume
from farandole.driver.core import ClusterCore
from farandole.driver.elastic import Elastic
from farandole.driver.elastic_cell import Told
from farandole.driver.errors import rank_error
from farandole.driver.group import Cell, call
from farandole.driver.hub import HubWorkers
from farandole.driver.kernels import Reply
from farandole.driver.local import LocalWorkers
from farandole.driver.logs import RankLogs
from farandole.driver.loop import LoopThread
from farandole.driver.output import Block
from farandole.driver.runs import RankStatus, Run, RunInfo
from farandole.driver.screen import Screen, Show
from farandole.driver.status import ClusterStatus, status_of
from farandole.driver.store import RunStore
from farandole.driver.transfer import Pulls, pack, push
from farandole.driver.workers import Progress, WorkerOptions, WorkerSource
from farandole.exceptions import NoClusterError, RankError, UsageError
from farandole.protocol import Kind, Status

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")
START_SECONDS = 120.0
RANK_STATES: dict[str, RankStatus] = {"ok": "done", "error": "failed", "dead": "dead"}

Watch = Callable[[Run], Callable[[], None]]
"""Called with a new run; returns what is called about ten times a second while the run goes on, and once at its end."""


class Cluster:
    """Workers of one user and the ranks on them.

    Make one with `Cluster.start` or `Cluster.attach`; with ``with`` it is stopped at the end. One cell runs at a time,
    a second is refused. `interrupt` and `status` may be called from any thread meanwhile.
    """

    def __init__(
        self,
        name: str,
        *,
        local: bool = False,
        hub_url: str | None = None,
        token: str | None = None,
        backend: str | None = None,
        store: RunStore | None = None,
        progress: Progress = print,
    ) -> None:
        if not NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a cluster's name; use 1 to 24 lower-case letters, digits and inner hyphens"
            )
        self.name = name
        self.store = store or RunStore()
        self._progress = progress
        self._runs: dict[str, Run] = {}
        self._pulls = Pulls()
        self._logs = RankLogs()
        self._loop = LoopThread()
        try:
            self._core = self._loop.call(self._make_core(local, hub_url, token, backend))
        except BaseException:
            self._loop.close()
            raise

    @classmethod
    def start(
        cls,
        workers: int | None = None,
        *,
        name: str = "main",
        profile: str | None = None,
        ranks: int | None = None,
        backend: str | None = None,
        timeout: float = START_SECONDS,
        wait: bool = False,
        **where: Any,
    ) -> Self:
        """Start a cluster and form its world.

        Args:
            workers: how many; default 2 on a hub, and 1, all there is, with ``local=True``.
            name: 1 to 24 lower-case letters, digits and inner hyphens.
            profile: one of the hub's profiles; None for its default.
            ranks: ranks on each worker; None for the profile's number.
            backend: ``horovod``, ``torch`` or ``none``; None for Horovod where it is installed, else torch.
            timeout: seconds within which the workers must be ready, a wait for GPUs left out.
            wait: queue while no GPU is free.
            where: ``local=True``, or ``hub_url`` and ``token`` for a hub elsewhere; ``store``; ``progress``.

        Raises:
            UsageError, ClusterExistsError, WorkerStartError, HubError: nothing is left running.
        """
        count = workers if workers is not None else (1 if where.get("local") else 2)
        for what, number in (("workers", count), ("ranks", 1 if ranks is None else ranks)):
            if number < 1:
                raise UsageError(f"a cluster needs at least 1 of {what}, not {number}")
        cluster = cls(name, backend=backend, **where)
        options = WorkerOptions(cluster=name, profile=profile, ranks=ranks, wait=wait)
        return cluster._open(cluster._core.start(count, options, cluster._progress, timeout))

    @classmethod
    def attach(cls, name: str = "main", *, timeout: float = START_SECONDS, **where: Any) -> Self:
        """Take up a cluster that runs already, after a restart of the driver, say.

        Raises:
            NoClusterError: no cluster of that name runs.
        """
        cluster = cls(name, **where)
        return cluster._open(cluster._core.attach(cluster._progress, timeout))

    @classmethod
    def running(cls, **where: Any) -> dict[str, int]:
        """Return the running clusters of the user: name -> number of workers."""
        cluster = cls("main", **where)
        try:
            return cluster._loop.call(cluster._core.source.clusters())
        finally:
            cluster.close()

    @classmethod
    def stop_named(cls, name: str, **where: Any) -> None:
        """Stop the workers of a cluster that this process does not lead, also those that start or hang.

        Raises:
            NoClusterError: it has no workers.
        """
        cluster = cls(name, **where)
        try:
            source = cluster._core.source
            names = cluster._loop.call(source.names(name))
            if not names:
                raise NoClusterError(f"no cluster {name!r} runs. `%cluster list` shows those that do.")
            cluster._loop.call(source.stop(names))
        finally:
            cluster.close()

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self._core.group.kernels)

    @property
    def backend(self) -> str:
        """The name of the backend in use."""
        return self._core.backend

    def run(self, code: str, *, ranks: Sequence[int] | None = None, show: Show | None = None) -> list[Block]:
        """Execute a cell on all ranks, or on some, and return its output, like output folded.

        Args:
            show: called in this thread with each block of output as it comes.

        Raises:
            RankError: the cell failed on a rank. RankDiedError: a rank ended. UsageError: no such rank.
        """
        self._check(ranks)
        self._refuse_while_busy()
        shown: list[Block] = []
        screen = Screen(list(range(self.size)) if ranks is None else list(ranks), show or shown.append)
        replies = self._call(
            self._core.run(code, ranks, self._sink(screen, None), self._progress), pump=screen.pump, screen=screen
        )
        self._raise_for(replies)
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
        elastic: Elastic | None = None,
    ) -> Run:
        """Execute a training cell on all ranks as a run, recorded as it goes; return it.

        With `elastic` it goes on when ranks are lost and takes in those that come.
        With ``resume`` the cell's ``fd.checkpoint`` goes on from that run: its id, the beginning of it, or its name;
        an empty text is the last one with a checkpoint, of this name or else of this folder.

        Raises:
            UsageError: the cell, or the cluster as it is, cannot be elastic.
            RankError, RankDiedError: the run failed; its record is kept.
            UsageError, RunNotFoundError: there is nothing to resume; no run was begun.
        """
        self._refuse_while_busy()
        source = None if resume is None else to_resume(self.store, resume, name=name)
        if backend is not None:
            self._loop.call(self._core.use(backend))
        self._loop.call(self._core.mend(self._progress))
        if elastic is not None:
            elastic.check(code=code, size=self.size, backend=self.backend)
        run = self._new_run(code, name, options, source)
        refresh = _nothing
        screen = Screen(list(range(self.size)), show or _ignore)
        try:
            if watch is not None:
                refresh = watch(run)
            replies = self._train(code, run, screen, refresh, elastic)
            self._note_states(run, replies)
            self._raise_for(replies)
        except BaseException as exc:
            self._finish_badly(run, exc)
            raise
        else:
            run.finish(Status.FINISHED)
        finally:
            del self._runs[run.id]
            refresh()
        return run

    def push(self, values: Mapping[str, Any], *, ranks: Sequence[int] | None = None) -> None:
        """Set variables on all ranks, or on some; from 1 MB on they go to one rank and are broadcast from there.

        Raises:
            TransferError: a value cannot be pickled, or not be rebuilt on a rank.
        """
        self._check(ranks)
        self._refuse_while_busy()
        blob = pack(values)
        everywhere = ranks is None and self.backend != "none"
        self._loop.call(self._core.mend(self._progress))
        self._loop.call(push(self._core.group, self._kernels(ranks), blob, broadcast=everywhere))

    def pull(self, *names: str, ranks: Sequence[int] | None = None) -> dict[int, dict[str, Any]]:
        """Return variables of ranks: rank -> name -> value.

        Raises:
            TransferError: a rank has no such variable, or it cannot be pickled or rebuilt.
        """
        self._check(ranks)
        return self._loop.call(self._pulls.pull(self._core.group, self._kernels(ranks), names))

    def scale(self, workers: int) -> None:
        """Start or stop workers until there are so many; ranks that stay keep their variables."""
        if workers < 1:
            raise UsageError(f"a cluster needs at least 1 worker, not {workers}; `%cluster stop` ends it")
        self._loop.call(self._core.scale(workers, self._progress))

    def interrupt(self) -> None:
        """Stop the running cell on all ranks, from another thread; they come back within 5 seconds."""
        self._loop.call(self._core.interrupt())

    def status(self) -> ClusterStatus:
        """Return the workers and ranks and how they are, and who has the hub's GPUs."""
        return status_of(self._core, self._loop.call(self._core.source.gpus()))

    def logs(self, rank: int, *, lines: int = 100) -> str:
        """Return the last lines that a rank printed, in whatever cell."""
        self._check([rank])
        return self._logs.tail(rank, lines)

    def stop(self) -> None:
        """Stop all workers, wait until they are gone and let go of the cluster."""
        try:
            self._loop.call(self._core.stop())
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the cluster; its workers run on, for `attach` (a local cluster's worker ends)."""
        try:
            self._loop.call(self._core.close())
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return str(status_of(self._core))

    def _repr_html_(self) -> str:
        return status_of(self._core).html()

    async def _make_core(self, local: bool, hub_url: str | None, token: str | None, backend: str | None) -> ClusterCore:
        session = aiohttp.ClientSession()
        try:
            source: WorkerSource = (
                LocalWorkers(session) if local else HubWorkers.from_environment(hub_url, token, session)
            )
        except BaseException:
            await session.close()
            raise
        return ClusterCore(self.name, source, backend=backend, on_records=self._on_records)

    def _open(self, work: Any) -> Self:
        try:
            self._loop.call(work)
        except BaseException:
            self.close()
            raise
        return self

    def _check(self, ranks: Sequence[int] | None) -> None:
        for rank in ranks or ():
            if not 0 <= rank < self.size:
                raise UsageError(f"there is no rank {rank}: cluster {self.name!r} has the ranks 0-{self.size - 1}")

    def _refuse_while_busy(self) -> None:
        if self._core.group.busy:
            raise UsageError(
                f"cluster {self.name!r} runs another cell; wait for it, or stop it with `%cluster interrupt`"
            )

    def _kernels(self, ranks: Sequence[int] | None) -> list[Any]:
        kernels = self._core.group.kernels
        return kernels if ranks is None else [kernels[rank] for rank in ranks]

    def _call(self, work: Any, *, pump: Callable[[], None], screen: Screen) -> list[Reply]:
        try:
            replies: list[Reply] = self._loop.call(work, on_interrupt=self._interrupt, pump=pump)
        finally:
            screen.pump(flush=True)
        return replies

    def _interrupt(self) -> Awaitable[None]:
        return self._core.interrupt()

    def _new_run(self, code: str, name: str | None, options: Mapping[str, Any] | None, source: RunInfo | None) -> Run:
        kernels = self._core.group.kernels
        versions = self._loop.call(
            self._core.group.control(call("versions"), what="asking for versions", timeout=30, kernels=kernels[:1])
        )[0]
        run = self.store.create(
            code=code,
            name=name,
            cluster=self.name,
            backend=self.backend,
            size=self.size,
            workers=[kernel.worker.name for kernel in kernels],
            options=options,
            versions=versions,
            resumed_from=source.id if source else None,
        )
        self._runs[run.id] = run
        return run

    def _train(
        self, code: str, run: Run, screen: Screen, refresh: Callable[[], None], elastic: Elastic | None
    ) -> list[Reply]:
        def pump() -> None:
            screen.pump()
            refresh()

        resume = str(self.store.folder / run.resumed_from) if run.resumed_from else ""
        rule = elastic.lr_rule if elastic is not None else ""
        cell = Cell(
            code=code,
            sink=self._sink(screen, run),
            before=call("begin", run.id, str(run.folder), resume, rule),
            after=call("end"),
        )
        if elastic is None:
            work = self._core.run(code, None, cell.sink, self._progress, before=cell.before, after=cell.after)
        else:
            work = self._core.run_elastic(cell, elastic, self._told(run), self._progress)
        return self._call(work, pump=pump, screen=screen)

    def _told(self, run: Run) -> Told:
        def notice(text: str) -> None:
            run.notice(text)
            self._progress(text)

        return Told(notice=notice, seated=run.seat)

    def _sink(self, screen: Screen, run: Run | None) -> Callable[[int, str, dict[str, Any]], None]:
        def take(rank: int, kind: str, content: dict[str, Any]) -> None:
            screen.put(rank, kind, content)
            if kind == "stream":
                self._logs.add(rank, content["text"])
                if run is not None:
                    run.add_log(rank, content["text"])

        return take

    def _on_records(self, rank: int, data: dict[str, Any], buffers: Sequence[bytes]) -> None:
        run = self._runs.get(data["run"])
        for record in data["records"]:
            if record["kind"] == Kind.VALUE:
                self._pulls.put(rank, buffers[0])
            elif run is not None:
                run.add_record(rank, record)

    def _note_states(self, run: Run, replies: Sequence[Reply]) -> None:
        for reply in replies:
            stopped = self._core.group.interrupted and reply.status == "error"
            run.set_rank_state(reply.rank, "stopped" if stopped else RANK_STATES[reply.status])

    def _raise_for(self, replies: Sequence[Reply]) -> None:
        if self._core.group.interrupted:
            raise RankError("the cell was stopped on all ranks")
        if any(reply.status != "ok" for reply in replies):
            raise rank_error(replies)

    def _finish_badly(self, run: Run, exc: BaseException) -> None:
        stopped = isinstance(exc, KeyboardInterrupt) or self._core.group.interrupted
        for view in run.ranks():
            if view.state == "running":
                run.set_rank_state(view.rank, "stopped" if stopped else "failed")
        run.finish(Status.INTERRUPTED if stopped else Status.FAILED, str(exc) or type(exc).__name__)


def _nothing() -> None:
    return None


def _ignore(_block: Block) -> None:
    return None
