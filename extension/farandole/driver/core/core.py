"""`ClusterCore` executes cells on the ranks of a cluster, and replaces lost workers and ranks before each cell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from farandole.driver.core.guests import ElasticRun, RankService
from farandole.driver.core.pool import WorkerHandle, WorkerPool, worker_name
from farandole.driver.core.software import Software
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import Cell, RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.liveness import Liveness
from farandole.driver.kernels.replies import Reply, Sink
from farandole.driver.kernels.router import MessageRouter
from farandole.driver.loop import watched
from farandole.driver.preflight.probe import preflight
from farandole.driver.preflight.result import Preflight
from farandole.driver.recovery.reattach import RunReader
from farandole.driver.workers.worker import Progress, WorkerInfo, WorkerOptions, WorkerSource
from farandole.driver.world.backends import choose_backend
from farandole.driver.world.backends.base import Backend
from farandole.driver.world.world import ANSWER_SECONDS, World
from farandole.exceptions import ClusterExistsError, NoClusterError, RankDiedError, RankError
from farandole.protocol import Notify

BOOT_SECONDS = 60.0
PRELOAD_SECONDS = 120.0
RELEASE_SECONDS = 5.0
"""How many seconds an interrupt waits for the stopped cell to release the cluster."""
BEGIN_SECONDS = 2.0
"""How many seconds an interrupt waits for a cell that is about to begin."""


class ClusterCore:
    """Starts, replaces and stops the workers and ranks of one cluster, and executes cells on them.

    All methods must be called on one event loop.
    """

    def __init__(self, name: str, source: WorkerSource, *, backend: str | None, on_notice: Progress) -> None:
        self.name = name
        self.source = source
        self.group = RankGroup()
        self.router = MessageRouter()
        self.world: World | None = None
        self.software = Software()
        """The versions of packages and data sets on the ranks, read before the world is formed."""
        self.ended = ""
        """Why the cluster was stopped or is being stopped from outside, or did not start. Empty in all other cases."""
        self._pool = WorkerPool(name, source, hear=self.router.route, on_notice=on_notice)
        self._wanted = backend
        # Every cell, every change of size and every start holds this lock. Two cells at the same time would mix up
        # their collectives, and the ranks must not change while a cell is being prepared or executed.
        self._cell = asyncio.Lock()
        self._replacing = False
        self._elastic: ElasticRun | None = None
        self.service: RankService | None = None
        """What runs on the ranks beside cells, or None."""
        self._coming: Sequence[str] = ()
        self._starts: set[asyncio.Task[None]] = set()

    @property
    def workers(self) -> Sequence[str]:
        """The names of the workers or, while the cluster is starting, of the planned workers."""
        return self._pool.names or self._coming

    @property
    def handles(self) -> Sequence[WorkerHandle]:
        """The handles of the workers, in rank order."""
        return self._pool.all

    async def start(self, workers: int, options: WorkerOptions, progress: Progress, timeout: float) -> None:
        """Start workers and ranks, and form the world. On failure, all new workers are stopped."""
        self._pool.options, self._pool.timeout = options, timeout
        # A scale request from outside waits until the start is complete, in the same way as it waits for a cell.
        async with self._cell:
            if self.name in await self.source.clusters():
                raise ClusterExistsError(
                    f"cluster {self.name!r} exists already. Use `%cluster attach {self.name}`, stop it with "
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
        """Find the workers and ranks of a running cluster. Cells that are still running there continue."""
        self._pool.timeout = timeout
        workers = await self.source.find(self.name)
        if not workers:
            raise await self.source.no_cluster(self.name)
        await self._pool.find(workers)
        self._wanted = self._wanted or self._pool.options.backend
        self._assign_ranks()
        progress(f"attached to {len(workers)} workers with {len(self.group.kernels)} ranks")

    async def scale(self, workers: int, progress: Progress, *, wanted: Callable[[], bool] = lambda: True) -> None:
        """Start or stop workers until the cluster has this many. Ranks on the remaining workers keep their variables.

        - If a cell is running, the call waits for its end, and then does nothing if `wanted` returns False.
        - During an elastic run, the call does not wait, because the run itself changes its size.
        """
        self.check_not_ended()
        if self._elastic is not None:
            await self._elastic.scale(workers, progress)
            return
        async with self._cell:
            self.check_not_ended()
            if workers != len(self._pool.names) and wanted():
                await self.resize(workers, progress)

    async def resize(self, workers: int, progress: Progress) -> None:
        """Start or stop workers until there are this many. The caller must have reserved the cluster with `cell`."""
        now = self._pool.names
        if workers < len(now):
            await self.drop(now[workers:])
        elif workers > len(now):
            await self.grow(workers - len(now), progress)
        self._world.invalidate()
        await self.reconcile(progress)

    def check_not_ended(self) -> None:
        """Raise `NoClusterError` if the cluster was stopped or is being stopped from outside, or did not start."""
        if self.ended:
            raise NoClusterError(self.ended)

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Await a coroutine that starts workers or ranks, and allow `break_off_starts` to cancel it."""
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
        """Cancel all starts of workers and ranks that are in progress, and wait for their cleanup."""
        for task in self._starts:
            task.cancel()
        if self._starts:
            await asyncio.wait(self._starts)

    @property
    def busy(self) -> bool:
        """Whether a cell is running or about to run, or the cluster is starting or changing its size.

        This is also true if all ranks of the cell are lost, but not during `replace_lost`.
        """
        return (self._cell.locked() and not self._replacing) or bool(self.group.busy)

    @asynccontextmanager
    async def cell(self, progress: Progress, *, backend: str | None = None) -> AsyncIterator[None]:
        """Reserve the cluster for one cell, replace lost ranks, and form the world with this backend if necessary."""
        async with self._cell:
            if backend is not None:
                self.use(backend)
            await self.reconcile(progress)
            yield

    async def replace_lost(self, progress: Progress) -> None:
        """Replace lost workers and ranks between two cells. A cell that begins meanwhile waits instead of failing."""
        async with self._cell:
            self._replacing = True
            try:
                await self.reconcile(progress)
            finally:
                self._replacing = False

    async def run(self, cell: Cell, ranks: Sequence[int] | None, progress: Progress) -> list[Reply]:
        """Replace lost workers and ranks, execute a cell on the ranks, and return its outcome on each rank."""
        async with self.cell(progress):
            return await self.execute(cell, ranks)

    async def execute(
        self, cell: Cell, ranks: Sequence[int] | None = None, *, notice: Notify | None = None
    ) -> list[Reply]:
        """Execute a cell on ``ranks``, or on all ranks if None. The caller must have reserved the cluster with `cell`.

        If `notice` is given, it is called with a report about each rank that stops answering.
        """
        kernels = self.group.kernels if ranks is None else [self.group.kernels[rank] for rank in ranks]
        work = self.group.run(cell, kernels, together=self.backend != "none")
        return self._checked(await self._with_liveness(work, notice))

    async def follow(
        self, readers: Sequence[RunReader], sink: Sink, *, together: bool, notice: Notify | None = None
    ) -> list[Reply]:
        """Follow a run of another driver until the run ends, and return the outcome of the run's cell on each rank.

        See `RankGroup.run` for `together` and `execute` for `notice`.
        """
        kernels = {kernel.kernel_id: kernel for kernel in self.group.kernels}
        async with self._cell:
            cells = {
                kernels.get(one.kernel_id, one.kernel): one.read(sink, kernels.get(one.kernel_id)) for one in readers
            }
            return self._checked(await self._with_liveness(self.group.lead(cells, together=together), notice))

    async def _with_liveness(self, work: Coroutine[Any, Any, list[Reply]], notice: Notify | None) -> list[Reply]:
        if notice is None:
            return await work
        return await watched(work, Liveness(lambda: self.group.busy, notice).run())

    def _checked(self, replies: list[Reply]) -> list[Reply]:
        intact = all(reply.status == "ok" and not reply.left for reply in replies)
        if not intact or self.group.interrupted:
            self._world.invalidate()
        return replies

    async def check(self, progress: Progress, **model: str) -> Preflight:
        """Replace lost workers and ranks, and then check all ranks and the network between them."""
        async with self.cell(progress):
            infos = [handle.info for handle in self.handles for _ in handle.kernels]
            found = await preflight(self.name, self.group, infos, self.backend, outside=self.source.outside, **model)
            if found.all_reduce_error:
                self._world.invalidate()
            return found

    async def lead(self, elastic: ElasticRun) -> list[Reply]:
        """Execute the cell of an elastic run. The caller must have reserved the cluster with `cell`."""
        self._elastic = self.router.elastic = elastic
        try:
            return await elastic.run()
        finally:
            self._elastic = self.router.elastic = None
            self._world.invalidate()

    async def take_over(self, elastic: ElasticRun) -> list[Reply]:
        """Supervise an elastic run whose driver has ended, and return the outcomes of the run's cell."""
        async with self._cell:
            return await self.lead(elastic)

    async def interrupt(self) -> None:
        """Stop the running cell on all ranks within seconds, including a cell that an earlier driver began."""
        await self._until_begun()
        stopped = bool(self.group.busy) or self._elastic is not None
        if self._elastic is not None:
            self._elastic.stop()
            # Also set here, because `group.interrupt` is not called while all ranks are lost and not yet replaced.
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
        """Wait until a cell that is about to begin has reached its ranks, and so can be interrupted."""
        give_up = time.monotonic() + BEGIN_SECONDS
        while self._is_about_to_run() and time.monotonic() < give_up:  # noqa: ASYNC110 - no single event marks the begin
            await asyncio.sleep(0.02)

    def _is_about_to_run(self) -> bool:
        starts = self._starts or self.ended
        return self._cell.locked() and not starts and not self.group.busy and self._elastic is None

    async def _until_released(self) -> None:
        """Wait until the stopped cell has released the cluster, so that the next cell is not refused."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS), self._cell:
                pass

    async def reconcile(self, progress: Progress) -> None:
        """Replace lost ranks and workers, and form the world again if it has changed."""
        self.check_not_ended()
        # A rank with a broken connection may be dead, for example because the hub stopped its idle worker. Wait until
        # each connection is open again or the rank is known to be dead.
        await asyncio.gather(*(kernel.reachable() for kernel in self.group.kernels if kernel.alive))
        await self.refill(progress)
        if not self._world.formed:
            await self._form_world(progress)

    async def refill(self, progress: Progress) -> None:
        """Replace dead ranks and lost workers."""
        self.check_not_ended()
        if not all(kernel.alive for kernel in self._pool.kernels):
            # If a rank died between two cells, no failed cell has invalidated the world.
            self._world.invalidate()
        await self._until_stopped(self._pool.refill(progress))

    async def grow(self, workers: int, progress: Progress) -> None:
        """Start this many additional workers with their ranks."""
        self.check_not_ended()
        await self._until_stopped(self._pool.grow(workers, progress))

    async def drop(self, names: Sequence[str]) -> None:
        """Stop these workers and everything that is running on them."""
        if self.service is not None:
            going = [handle for handle in self.handles if handle.worker.name in names]
            await self.service.leave([kernel for handle in going for kernel in handle.kernels])
        await self._pool.drop(names)

    async def admit(self, kernel: RankKernel, *, rank: int, size: int) -> None:
        """Prepare a new kernel as a rank. Until the rank joins the others, it is the only rank of its own world."""
        prepare, preload = rank_calls.prepare({"FARANDOLE_CLUSTER": self.name}), rank_calls.preload(self.backend)
        control = partial(self.group.control, what="preparing a new rank", kernels=[kernel])
        await control(prepare, timeout=BOOT_SECONDS)
        await control(preload, timeout=PRELOAD_SECONDS)
        kernel.prepared = True
        await self._world.form_alone(kernel, self._pool.of(kernel).info, rank=rank, size=size)

    async def form(self, kernels: Sequence[RankKernel]) -> None:
        """Form a world from ranks that are waiting for one while their cell is running."""
        handles = [self._pool.of(kernel) for kernel in kernels]
        await self._world.form(
            [handle.worker for handle in handles], [handle.info for handle in handles], waiting=kernels
        )

    async def infos(self) -> dict[str, WorkerInfo]:
        """Return the current state of each worker by name. Workers that do not answer in time are left out."""
        return await self._pool.infos()

    def use(self, backend: str) -> None:
        """Change the backend for the next cells."""
        self._world.use(self._chosen(backend))
        self._wanted = backend

    @property
    def backend(self) -> str:
        """The name of the backend. Before the ranks are known, this is the requested backend or an empty string."""
        return self.world.backend.name if self.world is not None else self._wanted or ""

    @property
    def _world(self) -> World:
        if self.world is None:
            raise NoClusterError("the cluster has not been started")
        return self.world

    async def stop(self) -> None:
        """Stop all workers, including workers that are starting, and wait until they have ended."""
        await self.break_off_starts()
        await self.group.close()
        await self._pool.stop()

    async def close(self) -> None:
        """Disconnect from the cluster, which keeps running."""
        await self.group.close()
        await self.source.close()

    def _assign_ranks(self) -> None:
        self.group.assign_ranks(self._pool.kernels)
        if self.world is None:
            self.world = World(self.group, self._chosen(self._wanted))

    async def _form_world(self, progress: Progress) -> None:
        """Assign the ranks and form their world."""
        self._assign_ranks()
        prepare = rank_calls.prepare({"FARANDOLE_CLUSTER": self.name})
        seconds = ANSWER_SECONDS if all(kernel.prepared for kernel in self.group.kernels) else BOOT_SECONDS
        await self.group.control(prepare, what="preparing the ranks", timeout=seconds)
        for kernel in self.group.kernels:
            kernel.prepared = True
        await self._preload(progress)
        each = [handle for handle in self.handles for _ in handle.kernels]
        await self._world.form([handle.worker for handle in each], [handle.info for handle in each])
        if self.service is not None:
            await self.service.join()

    async def _preload(self, progress: Progress) -> None:
        """Import the backend on the ranks. If Horovod is only the default and cannot be imported, use torch instead."""
        try:
            what, call = f"importing backend {self.backend}", rank_calls.preload(self.backend)
            self.software = Software.of(await self.group.control(call, what=what, timeout=PRELOAD_SECONDS), progress)
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
