"""The cluster as the event loop sees it: workers, ranks and their world, kept whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol

from farandole.driver.core.pool import WorkerHandle, WorkerPool, worker_name
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import Cell, RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.liveness import Liveness
from farandole.driver.kernels.replies import Reply, Sink
from farandole.driver.kernels.router import MemberListener, MessageRouter
from farandole.driver.preflight.probe import preflight
from farandole.driver.preflight.result import Preflight
from farandole.driver.recovery.reattach import RunReader
from farandole.driver.workers.worker import Progress, WorkerInfo, WorkerOptions, WorkerSource
from farandole.driver.world.backends import choose_backend
from farandole.driver.world.backends.base import Backend
from farandole.driver.world.world import ANSWER_SECONDS, World
from farandole.exceptions import ClusterExistsError, NoClusterError, RankDiedError, RankError

BOOT_SECONDS = 60.0
PRELOAD_SECONDS = 120.0
RELEASE_SECONDS = 5.0
BEGIN_SECONDS = 2.0
"""So long a cell may take until its ranks have it, where none must be started first."""


class ElasticRun(MemberListener, Protocol):
    """The running cell of an elastic run, as far as the core knows it; `driver.elastic` implements it on top of it."""

    async def run(self) -> list[Reply]:
        """Execute the cell and return how it ended on each rank that saw its end."""

    def stop(self) -> None:
        """End the run, because the user has stopped it."""

    async def scale(self, workers: int, progress: Progress) -> None:
        """Start or stop workers while the run continues."""


class ClusterCore:
    """Starts, keeps and stops the workers and ranks of one cluster; belongs to one event loop."""

    def __init__(self, name: str, source: WorkerSource, *, backend: str | None, on_notice: Progress) -> None:
        self.name = name
        self.source = source
        self.group = RankGroup()
        self.router = MessageRouter()
        self.world: World | None = None
        self.versions: dict[str, str] = {}
        """What rank 0 says of its Python and packages; fetched where the world is prepared."""
        self.ended = ""
        """Why there is no cluster any more that others stop, or have stopped; empty while there is one."""
        self._pool = WorkerPool(name, source, hear=self.router.route, on_notice=on_notice)
        self._wanted = backend
        # One cell at a time: a second one would mix its collectives with those of the first.
        self._cell = asyncio.Lock()
        self._elastic: ElasticRun | None = None
        self._coming: Sequence[str] = ()
        self._starts: set[asyncio.Task[None]] = set()

    @property
    def workers(self) -> Sequence[str]:
        """The names of the workers; while the cluster starts, of those that are to be."""
        return self._pool.names or self._coming

    @property
    def handles(self) -> Sequence[WorkerHandle]:
        """The workers with their kernels, in the order of the ranks."""
        return self._pool.all

    async def start(self, workers: int, options: WorkerOptions, progress: Progress, timeout: float) -> None:
        """Start workers and ranks and form the world; whatever fails, nothing is left behind."""
        self._pool.options, self._pool.timeout = options, timeout
        # What others ask for meanwhile waits as it does for a cell.
        async with self._cell:
            if self.name in await self.source.clusters():
                raise ClusterExistsError(
                    f"cluster {self.name!r} is there already. Use `%cluster attach {self.name}`, stop it with "
                    f"`%cluster stop {self.name}`, or choose another `--name`."
                )
            self._coming = [worker_name(self.name, index) for index in range(workers)]
            try:
                await self._until_stopped(self._start(self._coming, progress))
            except BaseException:
                self.ended = self.ended or f"cluster {self.name!r} has not started"
                raise
            finally:
                self._coming = ()

    async def _start(self, names: Sequence[str], progress: Progress) -> None:
        try:
            await self._pool.start(names, progress)
            await self._form_world(progress)
        except BaseException:
            await self.drop(self._pool.names)
            raise

    async def attach(self, progress: Progress, timeout: float) -> None:
        """Find the workers and ranks of a running cluster; ranks that still run a cell are left to it."""
        self._pool.timeout = timeout
        workers = await self.source.find(self.name)
        if not workers:
            raise NoClusterError(f"no cluster {self.name!r} runs. `%cluster list` shows those that do.")
        await self._pool.find(workers)
        self._wanted = self._wanted or self._pool.options.backend
        self._assign_ranks()
        progress(f"attached to {len(workers)} workers with {len(self.group.kernels)} ranks")

    async def scale(self, workers: int, progress: Progress, *, wanted: Callable[[], bool] = lambda: True) -> None:
        """Start or stop workers until there are so many; the ranks that stay keep their variables.

        Nothing is done where that is no longer `wanted` once a cell that runs has ended.
        """
        self.check_not_ended()
        if self._elastic is not None:
            await self._elastic.scale(workers, progress)
            return
        async with self._cell:
            self.check_not_ended()
            now = self._pool.names
            if workers == len(now) or not wanted():
                return
            if workers < len(now):
                await self.drop(now[workers:])
            else:
                await self.grow(workers - len(now), progress)
            self._world.invalidate()
            await self._reconcile(progress)

    def check_not_ended(self) -> None:
        """Raise `NoClusterError` where others stop the cluster, or have stopped it."""
        if self.ended:
            raise NoClusterError(self.ended)

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what starts workers or ranks, unless the cluster is stopped meanwhile."""
        task = asyncio.create_task(work)
        self._starts.add(task)
        try:
            await task
        except asyncio.CancelledError:
            self.check_not_ended()
            raise
        finally:
            self._starts.discard(task)

    async def break_off_starts(self) -> None:
        """Break off all starts of workers and ranks, and wait until what they have left is cleared away."""
        for task in self._starts:
            task.cancel()
        if self._starts:
            await asyncio.wait(self._starts)

    @property
    def busy(self) -> bool:
        """Whether a cell runs, or is about to, also while all its ranks are lost."""
        return self._cell.locked() or bool(self.group.busy)

    @asynccontextmanager
    async def cell(self, progress: Progress, *, backend: str | None = None) -> AsyncIterator[None]:
        """Hold the cluster for one cell, made whole and with this backend: no other cell and no scale comes between."""
        async with self._cell:
            if backend is not None:
                self.use(backend)
            await self._reconcile(progress)
            yield

    async def run(self, cell: Cell, ranks: Sequence[int] | None, progress: Progress) -> list[Reply]:
        """Make the cluster whole, execute a cell on its ranks and return how it ended on each."""
        async with self.cell(progress):
            return await self.execute(cell, ranks)

    async def execute(
        self, cell: Cell, ranks: Sequence[int] | None = None, *, notice: Progress | None = None
    ) -> list[Reply]:
        """Do as `run` for a caller that holds the cluster.

        With `notice` the ranks are watched meanwhile, and it reports those that do not answer.
        """
        kernels = self.group.kernels if ranks is None else [self.group.kernels[rank] for rank in ranks]
        work = self.group.run(cell, kernels, together=self.backend != "none")
        return self._checked(await self._watched(work, notice))

    async def follow(
        self, readers: Sequence[RunReader], sink: Sink, *, together: bool, notice: Progress | None = None
    ) -> list[Reply]:
        """Hear a run of another driver to its end; `together` as for `RankGroup.run`, `notice` as for `run`."""
        kernels = {kernel.kernel_id: kernel for kernel in self.group.kernels}
        async with self._cell:
            cells = {
                kernels.get(one.kernel_id, one.kernel): one.read(sink, kernels.get(one.kernel_id)) for one in readers
            }
            return self._checked(await self._watched(self.group.lead(cells, together=together), notice))

    async def _watched(self, work: Coroutine[Any, Any, list[Reply]], notice: Progress | None) -> list[Reply]:
        if notice is None:
            return await work
        watch = asyncio.create_task(Liveness(lambda: self.group.busy, notice).run())
        try:
            return await work
        finally:
            watch.cancel()

    def _checked(self, replies: list[Reply]) -> list[Reply]:
        if any(reply.status != "ok" for reply in replies) or self.group.interrupted:
            self._world.invalidate()
        return replies

    async def check(self, progress: Progress) -> Preflight:
        """Make the cluster whole and look at its ranks and the network between them."""
        async with self.cell(progress):
            infos = [handle.info for handle in self.handles for _ in handle.kernels]
            found = await preflight(self.name, self.group, infos, self.backend)
            if found.all_reduce_error:
                self._world.invalidate()
            return found

    async def lead(self, elastic: ElasticRun) -> list[Reply]:
        """Execute a cell that continues when ranks are lost or added, for a caller that holds the cluster."""
        self._elastic = self.router.elastic = elastic
        try:
            return await elastic.run()
        finally:
            self._elastic = self.router.elastic = None
            self._world.invalidate()

    async def take_over(self, elastic: ElasticRun) -> list[Reply]:
        """Lead an elastic run whose driver is gone, from the point that its ranks have reached."""
        async with self._cell:
            return await self.lead(elastic)

    async def interrupt(self) -> None:
        """Stop the running cell on all ranks, within seconds; also one that an earlier driver left running."""
        await self._until_begun()
        stopped = bool(self.group.busy) or self._elastic is not None
        if self._elastic is not None:
            self._elastic.stop()
            # Perhaps no rank is there to be interrupted: all are lost, and others come.
            self.group.interrupted = True
        if self.world is not None:
            self.world.invalidate()
        if self.group.busy:
            await self.group.interrupt(together=self.backend != "none")
        elif not self._cell.locked():
            await self.group.free(together=self.backend != "none")
        if stopped:
            await self._until_released()

    async def _until_begun(self) -> None:
        """Wait a moment for a cell that is about to be given to its ranks: it would run although it was stopped."""
        give_up = time.monotonic() + BEGIN_SECONDS
        while self._is_about_to_run() and time.monotonic() < give_up:  # noqa: ASYNC110 - it has many ways
            await asyncio.sleep(0.02)

    def _is_about_to_run(self) -> bool:
        starts = self._starts or self.ended
        return self._cell.locked() and not starts and not self.group.busy and self._elastic is None

    async def _until_released(self) -> None:
        """Wait until the cell whose ranks were stopped has let go of the cluster: the next one must not be refused."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS), self._cell:
                pass

    async def _reconcile(self, progress: Progress) -> None:
        self.check_not_ended()
        # A connection that has just broken is a death not yet known, if the worker was stopped for being idle, say.
        await asyncio.gather(*(kernel.reachable() for kernel in self.group.kernels if kernel.alive))
        await self.refill(progress)
        if not self._world.formed:
            await self._form_world(progress)

    async def refill(self, progress: Progress) -> None:
        """Put new ranks in the place of dead ones, and new workers in the place of those that are gone."""
        self.check_not_ended()
        if not all(kernel.alive for kernel in self._pool.kernels):
            # A death between two cells has failed none, and nobody else has told the world.
            self._world.invalidate()
        await self._until_stopped(self._pool.refill(progress))

    async def grow(self, workers: int, progress: Progress) -> None:
        """Start so many workers more, with their ranks."""
        self.check_not_ended()
        await self._until_stopped(self._pool.grow(workers, progress))

    async def drop(self, names: Sequence[str]) -> None:
        """Stop these workers, and all that goes on there."""
        await self._pool.drop(names)

    async def admit(self, kernel: RankKernel, *, rank: int, size: int) -> None:
        """Make a new kernel a rank that lives alone until it joins the world."""
        prepare, preload = rank_calls.prepare({"FARANDOLE_CLUSTER": self.name}), rank_calls.preload(self.backend)
        control = partial(self.group.control, what="preparing a new rank", kernels=[kernel])
        await control(prepare, timeout=BOOT_SECONDS)
        await control(preload, timeout=PRELOAD_SECONDS)
        kernel.prepared = True
        await self._world.form_alone(kernel, self._pool.of(kernel).info, rank=rank, size=size)

    async def form(self, kernels: Sequence[RankKernel]) -> None:
        """Tell ranks that wait beside their cell to form a world."""
        handles = [self._pool.of(kernel) for kernel in kernels]
        await self._world.form(
            [handle.worker for handle in handles], [handle.info for handle in handles], waiting=kernels
        )

    async def infos(self) -> dict[str, WorkerInfo]:
        """Ask the workers how they are; those that do not answer soon are left out."""
        return await self._pool.infos()

    def use(self, backend: str) -> None:
        """Change the backend before the next cell."""
        self._world.use(self._chosen(backend))
        self._wanted = backend

    @property
    def backend(self) -> str:
        """The name of the backend in use; before there are ranks, of the one that was asked for, if any."""
        return self.world.backend.name if self.world is not None else self._wanted or ""

    @property
    def _world(self) -> World:
        if self.world is None:
            raise NoClusterError("the cluster has not been started")
        return self.world

    async def stop(self) -> None:
        """Stop all workers, also those that are just started, and wait until they are gone."""
        await self.break_off_starts()
        await self.group.close()
        await self._pool.stop()

    async def close(self) -> None:
        """Let go of the cluster without stopping it."""
        await self.group.close()
        await self.source.close()

    def _assign_ranks(self) -> None:
        self.group.assign_ranks(self._pool.kernels)
        if self.world is None:
            self.world = World(self.group, self._chosen(self._wanted))

    async def _form_world(self, progress: Progress) -> None:
        """Seat the ranks and form their world."""
        self._assign_ranks()
        environment = {"FARANDOLE_CLUSTER": self.name}
        fresh = any(not kernel.prepared for kernel in self.group.kernels)
        await self.group.control(
            rank_calls.prepare(environment),
            what="preparing the ranks",
            timeout=BOOT_SECONDS if fresh else ANSWER_SECONDS,
        )
        for kernel in self.group.kernels:
            kernel.prepared = True
        await self._preload(progress)
        each = [handle for handle in self.handles for _ in handle.kernels]
        await self._world.form([handle.worker for handle in each], [handle.info for handle in each])

    async def _preload(self, progress: Progress) -> None:
        """Import what the backend needs; where Horovod does not import and nobody chose it, take torch instead."""
        try:
            self.versions, *_ = await self.group.control(
                rank_calls.preload(self.backend), what=f"importing backend {self.backend}", timeout=PRELOAD_SECONDS
            )
        except RankDiedError:
            raise
        except RankError as exc:
            if self._wanted is not None or self.backend != "horovod":
                raise
            progress(f"Horovod cannot be imported, so the cluster uses backend torch; {str(exc).splitlines()[0]}")
            self._world.use(self._chosen("torch"))
            await self._preload(progress)

    def _chosen(self, backend: str | None) -> Backend:
        return choose_backend(backend, [handle.info.backends for handle in self.handles])
