"""The cluster as the event loop sees it: workers, ranks and their world, kept whole."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from farandole.driver.backends import choose_backend
from farandole.driver.backends.base import Backend
from farandole.driver.group import RankGroup, call
from farandole.driver.kernels import RankKernel, Records, Reply, Sink
from farandole.driver.preflight.probe import preflight
from farandole.driver.preflight.result import Preflight
from farandole.driver.reattach import RunReader
from farandole.driver.workers import Progress, Worker, WorkerInfo, WorkerOptions, WorkerSource
from farandole.driver.world import ANSWER_SECONDS, World
from farandole.exceptions import ClusterExistsError, NoClusterError, RankDiedError, RankError, WorkerStartError

BOOT_SECONDS = 60.0
PRELOAD_SECONDS = 120.0
LOOK_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Crew:
    """A worker, what it says of itself, and the kernels of its ranks."""

    worker: Worker
    info: WorkerInfo
    kernels: list[RankKernel]


class ClusterCore:
    """Starts, keeps and stops the workers and ranks of one cluster; belongs to one event loop."""

    def __init__(
        self, name: str, source: WorkerSource, *, backend: str | None, on_records: Records, on_notice: Progress
    ) -> None:
        self.name = name
        self.source = source
        self.group = RankGroup()
        self.world: World | None = None
        self._crews: list[Crew] = []
        self._wanted = backend
        self._on_records = on_records
        self._on_notice = on_notice
        self._options = WorkerOptions(cluster=name)
        self._timeout = 0.0
        # One cell at a time: a second one would mix its collectives with those of the first.
        self._cell = asyncio.Lock()

    @property
    def crews(self) -> Sequence[Crew]:
        """The workers with their kernels, in the order of the ranks."""
        return self._crews

    async def start(self, workers: int, options: WorkerOptions, progress: Progress, timeout: float) -> None:
        """Start workers and ranks and form the world; whatever fails, nothing is left behind."""
        self._options, self._timeout = options, timeout
        if self.name in await self.source.clusters():
            raise ClusterExistsError(
                f"cluster {self.name!r} is there already. Use `%cluster attach {self.name}`, stop it with "
                f"`%cluster stop {self.name}`, or choose another `--name`."
            )
        names = [worker_name(self.name, index) for index in range(workers)]
        try:
            self._crews = await self._start_crews(names, progress)
            await self._settle(progress)
        except BaseException:
            await self._drop([crew.worker.name for crew in self._crews])
            raise

    async def attach(self, progress: Progress, timeout: float) -> None:
        """Find the workers and ranks of a running cluster; ranks that still run a cell are left to it."""
        self._timeout = timeout
        workers = await self.source.find(self.name)
        if not workers:
            raise NoClusterError(f"no cluster {self.name!r} runs. `%cluster list` shows those that do.")
        self._crews = list(await asyncio.gather(*(self._crew_of(worker, found=True) for worker in workers)))
        first = self._crews[0].info
        self._options = WorkerOptions(cluster=self.name, profile=first.profile or None, ranks=first.ranks)
        self._seat()
        progress(f"attached to {len(workers)} workers with {len(self.group.kernels)} ranks")

    async def scale(self, workers: int, progress: Progress) -> None:
        """Start or stop workers until there are so many; the ranks that stay keep their variables."""
        async with self._cell:
            now = [crew.worker.name for crew in self._crews]
            if workers == len(now):
                return
            if workers < len(now):
                await self._drop(now[workers:])
            else:
                self._crews += await self._start_crews(self._free_names(workers - len(now)), progress)
            self._world.taint()
            await self.mend(progress)

    async def run(
        self,
        code: str,
        ranks: Sequence[int] | None,
        sink: Sink,
        progress: Progress,
        *,
        before: str = "",
        after: str = "",
        mark: dict[str, Any] | None = None,
    ) -> list[Reply]:
        """Make the cluster whole, execute a cell on its ranks and return how it ended on each."""
        async with self._cell:
            await self.mend(progress)
            kernels = self.group.kernels if ranks is None else [self.group.kernels[rank] for rank in ranks]
            together = self.backend != "none"
            replies = await self.group.run(
                code, kernels, sink, before=before, after=after, mark=mark, together=together
            )
            return self._tainted_by(replies)

    async def follow(self, readers: Sequence[RunReader], sink: Sink, *, together: bool) -> list[Reply]:
        """Hear a run of another driver from its beginning to its end; `together` as for `RankGroup.run`."""
        kernels = {kernel.kernel_id: kernel for kernel in self.group.kernels}
        async with self._cell:
            cells = {kernels.get(one.kernel_id, one.kernel): one.read(sink) for one in readers}
            return self._tainted_by(await self.group.lead(cells, together=together))

    def _tainted_by(self, replies: list[Reply]) -> list[Reply]:
        if any(reply.status != "ok" for reply in replies) or self.group.interrupted:
            self._world.taint()
        return replies

    async def check(self, progress: Progress) -> Preflight:
        """Make the cluster whole and look at its ranks and the network between them."""
        async with self._cell:
            await self.mend(progress)
            infos = [crew.info for crew in self._crews for _ in crew.kernels]
            found = await preflight(self.name, self.group, infos, self.backend)
            if found.all_reduce_error:
                self._world.taint()
            return found

    async def interrupt(self) -> None:
        """Stop the running cell on all ranks, within seconds; also one that an earlier driver left running."""
        self._world.taint()
        if self.group.busy:
            await self.group.interrupt(together=self.backend != "none")
        elif not self._cell.locked():
            await self.group.free(together=self.backend != "none")

    async def mend(self, progress: Progress) -> None:
        """Put new ranks in the place of dead ones and form the world anew, where that is needed."""
        # A connection that has just broken is a death not yet known, if the worker was stopped for being idle, say.
        await asyncio.gather(*(kernel.reachable() for kernel in self.group.kernels if kernel.alive))
        gone: list[Crew] = []
        for crew in list(self._crews):
            if lost := [kernel for kernel in crew.kernels if not kernel.alive]:
                # A death between two cells has failed none, and nobody else has told the world.
                self._world.taint()
                if not await self._refill(crew, lost, progress):
                    gone.append(crew)
        if gone:
            await self._replace(gone, progress)
        if not self._world.formed:
            await self._settle(progress)

    async def looks(self) -> dict[str, WorkerInfo]:
        """Ask the workers how they are; those that do not answer soon are left out."""
        answers = await asyncio.gather(*(_look(crew.worker) for crew in self._crews))
        return {info.worker: info for info in answers if info is not None}

    async def use(self, backend: str) -> None:
        """Change the backend before the next cell."""
        self._world.use(self._chosen(backend))
        self._wanted = backend

    @property
    def backend(self) -> str:
        """The name of the backend in use."""
        return self._world.backend.name

    @property
    def _world(self) -> World:
        if self.world is None:
            raise NoClusterError("the cluster has not been started")
        return self.world

    async def stop(self) -> None:
        """Stop all workers and wait until they are gone."""
        await self.group.close()
        await self.source.stop([crew.worker.name for crew in self._crews])
        self._crews = []

    async def close(self) -> None:
        """Let go of the cluster without stopping it."""
        await self.group.close()
        await self.source.close()

    async def _start_crews(self, names: Sequence[str], progress: Progress) -> list[Crew]:
        staying = [crew.worker.name for crew in self._crews if crew.worker.name not in names]
        options = replace(self._options, workers=len(staying) + len(names), together=len(names))
        workers = await self.source.start(names, options, progress, self._timeout)
        try:
            return list(await asyncio.gather(*(self._crew_of(worker) for worker in workers)))
        except BaseException:
            # Only what this start made is stopped: where the source refused, the names belong to somebody else.
            await self.source.stop(names)
            raise

    def _free_names(self, count: int) -> list[str]:
        """Return names for new workers; there are gaps where a cluster was attached after a worker was lost."""
        taken = {crew.worker.name for crew in self._crews}
        names = (worker_name(self.name, index) for index in itertools.count())
        return list(itertools.islice((name for name in names if name not in taken), count))

    async def _crew_of(self, worker: Worker, *, found: bool = False) -> Crew:
        info = await worker.info()
        running = await worker.kernels() if found else {}
        slots = sorted({*running, *range(info.ranks)})
        idle = info.idle_seconds or 0.0
        kernels = await asyncio.gather(*(self._kernel(worker, slot, running.get(slot), idle) for slot in slots))
        return Crew(worker=worker, info=info, kernels=list(kernels))

    async def _kernel(
        self, worker: Worker, slot: int, kernel_id: str | None = None, idle_seconds: float = 0.0
    ) -> RankKernel:
        kernel = RankKernel(
            worker,
            kernel_id or await worker.start_kernel(slot),
            slot=slot,
            on_records=self._on_records,
            on_death=partial(self._tell_if_stopped, worker),
            idle_seconds=idle_seconds if kernel_id else 0.0,
        )
        kernel.prepared = kernel_id is not None
        await kernel.connect()
        return kernel

    def _tell_if_stopped(self, worker: Worker) -> None:
        """Tell at once of a worker that the hub has stopped; of other deaths the running cell tells, or the next."""
        for crew in self._crews:
            if crew.worker is worker and (reason := idle_reason(crew)):
                self._on_notice(f"worker {worker.name} is stopped: it {reason}. The next cell starts it anew, empty.")

    def _seat(self) -> None:
        self.group.seat([kernel for crew in self._crews for kernel in crew.kernels])
        if self.world is None:
            self.world = World(self.group, self._chosen(self._wanted))

    async def _settle(self, progress: Progress) -> None:
        """Seat the ranks and form their world."""
        self._seat()
        environment = {"FARANDOLE_CLUSTER": self.name}
        fresh = any(not kernel.prepared for kernel in self.group.kernels)
        await self.group.control(
            call("prepare", environment), what="preparing the ranks", timeout=BOOT_SECONDS if fresh else ANSWER_SECONDS
        )
        for kernel in self.group.kernels:
            kernel.prepared = True
        await self._preload(progress)
        each = [crew for crew in self._crews for _ in crew.kernels]
        await self._world.form([crew.worker for crew in each], [crew.info for crew in each])

    async def _preload(self, progress: Progress) -> None:
        """Import what the backend needs; where Horovod does not import and nobody chose it, take torch instead."""
        try:
            await self.group.control(
                call("preload", self.backend), what=f"importing backend {self.backend}", timeout=PRELOAD_SECONDS
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
        return choose_backend(backend, [crew.info.backends for crew in self._crews])

    async def _refill(self, crew: Crew, lost: Sequence[RankKernel], progress: Progress) -> bool:
        """Start a worker's lost ranks anew; False where the worker is gone itself."""
        for kernel in lost:
            progress(
                f"rank {kernel.rank} on worker {crew.worker.name} is gone ({kernel.death}); "
                "starting it anew, with empty variables"
            )
            await kernel.close()
        try:
            await crew.worker.info()
        except WorkerStartError:
            return False
        # Whoever was only out of reach must not be taken for its own successor.
        await asyncio.gather(*(crew.worker.stop_kernel(kernel.kernel_id) for kernel in lost))
        fresh = {kernel.slot: await self._kernel(crew.worker, kernel.slot) for kernel in lost}
        kernels = [fresh.get(kernel.slot, kernel) for kernel in crew.kernels]
        self._crews[self._crews.index(crew)] = replace(crew, kernels=kernels)
        return True

    async def _replace(self, gone: Sequence[Crew], progress: Progress) -> None:
        """Start workers anew, all at once: where they queue for GPUs, they are served together."""
        for crew in gone:
            progress(f"worker {crew.worker.name} {idle_reason(crew) or 'is gone as well'}; starting it anew")
        names = [crew.worker.name for crew in gone]
        await self.source.stop(names)
        for crew, fresh in zip(gone, await self._start_crews(names, progress), strict=True):
            self._crews[self._crews.index(crew)] = fresh

    async def _drop(self, names: Sequence[str]) -> None:
        going = [crew for crew in self._crews if crew.worker.name in names]
        self._crews = [crew for crew in self._crews if crew.worker.name not in names]
        for crew in going:
            await asyncio.gather(*(kernel.close() for kernel in crew.kernels))
        await self.source.stop(names)


async def _look(worker: Worker) -> WorkerInfo | None:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await worker.info()
    except (WorkerStartError, TimeoutError):
        return None


def idle_reason(crew: Crew) -> str:
    """Return why the hub stopped a worker that was idle for too long, after "it"; empty where it did not."""
    idle = min(kernel.idle_seconds for kernel in crew.kernels) / 60
    if crew.info.idle_minutes and idle >= crew.info.idle_minutes:
        return f"had been idle for {idle:.3g} minutes, and this hub stops workers after {crew.info.idle_minutes:g}"
    return ""


def worker_name(cluster: str, index: int) -> str:
    """Return the name of a cluster's worker: ``<cluster>-w<index>``."""
    return f"{cluster}-w{index}"
