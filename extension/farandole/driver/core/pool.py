"""Starts, finds, replaces and stops the workers of a cluster, together with the kernels of their ranks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.loop import all_or_first_error
from farandole.driver.workers.worker import Progress, Worker, WorkerInfo, WorkerOptions, WorkerSource
from farandole.exceptions import WorkerStartError
from farandole.runs.positions import JournalPosition
from farandole.times import duration_text

INFO_SECONDS = 5.0
WORKERS_AT_ONCE = 16
"""How many new workers are queried at the same time. Each worker verifies the request's token at the hub, which would
be slow for hundreds of workers at once."""

Hear: TypeAlias = Callable[[RankKernel, int, dict[str, Any], list[bytes], JournalPosition | None], None]
"""A callback that gets the kernel, rank, comm data, buffers and position of every batch of rank messages."""


@dataclass(frozen=True, kw_only=True)
class WorkerHandle:
    """A worker, its info, and the kernels of its ranks."""

    worker: Worker
    info: WorkerInfo
    kernels: list[RankKernel]


class WorkerPool:
    """The workers of one cluster, in rank order. All methods must be called on one event loop."""

    def __init__(self, name: str, source: WorkerSource, *, hear: Hear, on_notice: Progress) -> None:
        self.name = name
        self.all: list[WorkerHandle] = []
        self.options = WorkerOptions(cluster=name)
        self.timeout = 0.0
        self._source = source
        self._hear = hear
        self._on_notice = on_notice
        self._asking = asyncio.Semaphore(WORKERS_AT_ONCE)

    @property
    def kernels(self) -> list[RankKernel]:
        """The kernels of all ranks."""
        return [kernel for handle in self.all for kernel in handle.kernels]

    @property
    def names(self) -> list[str]:
        """The names of the workers."""
        return [handle.worker.name for handle in self.all]

    def of(self, kernel: RankKernel) -> WorkerHandle:
        """Return the handle of the worker on which a kernel runs."""
        return next(handle for handle in self.all if kernel in handle.kernels)

    async def find(self, workers: Sequence[Worker]) -> None:
        """Use workers and ranks that are already running."""
        self.all = await self._handles_of(workers, found=True)
        first = self.all[0].info
        backend = first.backend or None
        self.options = WorkerOptions(
            cluster=self.name, profile=first.profile or None, ranks=first.ranks, backend=backend
        )

    async def start(self, names: Sequence[str], progress: Progress) -> None:
        """Start the cluster's first workers with their ranks."""
        self.all = await self._start(names, progress)

    async def infos(self) -> dict[str, WorkerInfo]:
        """Return the current state of each worker by name. Workers that do not answer in time are left out."""
        answers = await asyncio.gather(*(_info_of(handle.worker) for handle in self.all))
        return {info.worker: info for info in answers if info is not None}

    async def grow(self, workers: int, progress: Progress) -> None:
        """Start this many additional workers with their ranks."""
        self.all += await self._start(self._free_names(workers), progress)

    async def refill(self, progress: Progress) -> None:
        """Replace dead ranks and lost workers."""
        short = [handle for handle in self.all if not all(kernel.alive for kernel in handle.kernels)]
        tries = await asyncio.gather(*(self._refill(handle, progress) for handle in short), return_exceptions=True)
        if gone := [handle for handle, found in zip(short, tries, strict=True) if found is False]:
            await self._replace(gone, progress)
        # Raise errors only after all starts have ended, so that a retry does not start the same worker twice.
        for failure in tries:
            if isinstance(failure, BaseException):
                raise failure

    async def drop(self, names: Sequence[str]) -> None:
        """Stop these workers and everything that is running on them."""
        going = [handle for handle in self.all if handle.worker.name in names]
        self.all = [handle for handle in self.all if handle.worker.name not in names]
        for handle in going:
            await _disconnect(handle.kernels)
        await self._source.stop(names)

    async def stop(self) -> None:
        """Stop all workers. They remain in `names` until they have ended, so that a failed stop can be repeated."""
        await _disconnect(self.kernels)
        await self._source.stop(self.names)
        self.all = []

    async def _start(self, names: Sequence[str], progress: Progress) -> list[WorkerHandle]:
        staying = [handle.worker.name for handle in self.all if handle.worker.name not in names]
        options = replace(self.options, workers=len(staying) + len(names), together=len(names))
        workers = await self._source.start(names, options, progress, self.timeout)
        try:
            return await self._handles_of(workers)
        except BaseException:
            # If the source itself refuses to start the workers, they must not be stopped, because existing workers with
            # these names may belong to another driver.
            await self._source.stop(names)
            raise

    def _free_names(self, count: int) -> list[str]:
        """Return unused names for this many new workers.

        The indices in use may have gaps, for example if a worker was lost before this driver attached.
        """
        taken = {handle.worker.name for handle in self.all}
        names = (worker_name(self.name, index) for index in itertools.count())
        return list(itertools.islice((name for name in names if name not in taken), count))

    async def _handles_of(self, workers: Sequence[Worker], *, found: bool = False) -> list[WorkerHandle]:
        """Connect to workers, and return their handles. After an error, the kernels of all workers are disconnected."""
        whole: list[RankKernel] = []
        try:
            return await all_or_first_error([self._handle_of(worker, whole, found=found) for worker in workers])
        except BaseException:
            await _disconnect(whole)
            raise

    async def _handle_of(self, worker: Worker, whole: list[RankKernel], *, found: bool) -> WorkerHandle:
        async with self._asking:
            info = await worker.info()
        running = await worker.kernels() if found else {}
        slots = {slot: running.get(slot) for slot in sorted({*running, *range(info.ranks)})}
        kernels = await self._kernels(worker, slots, info.idle_seconds or 0.0)
        whole += kernels
        return WorkerHandle(worker=worker, info=info, kernels=kernels)

    async def _kernels(
        self, worker: Worker, slots: Mapping[int, str | None], idle_seconds: float = 0.0
    ) -> list[RankKernel]:
        """Connect to the kernels of these slots, and start a new kernel for each slot without a kernel id.

        If one connection fails, the other connections are closed.
        """
        connected: list[RankKernel] = []

        async def connect(slot: int, kernel_id: str | None) -> RankKernel:
            connected.append(kernel := await self._kernel(worker, slot, kernel_id, idle_seconds))
            # `all` is empty until the cluster has started or was found.
            kernel.late = kernel_id is None and bool(self.all)
            return kernel

        try:
            return await all_or_first_error([connect(slot, kernel_id) for slot, kernel_id in slots.items()])
        except BaseException:
            await _disconnect(connected)
            raise

    async def _kernel(
        self, worker: Worker, slot: int, kernel_id: str | None = None, idle_seconds: float = 0.0
    ) -> RankKernel:
        kernel = RankKernel(
            worker,
            kernel_id or await worker.start_kernel(slot),
            slot=slot,
            on_death=partial(self._report_if_idle, worker),
            idle_seconds=idle_seconds if kernel_id else 0.0,
        )
        kernel.prepared = kernel_id is not None
        kernel.on_records = partial(self._hear, kernel)
        await kernel.connect()
        return kernel

    def _report_if_idle(self, worker: Worker) -> None:
        """Notify the user if the hub stopped the worker because it was idle. The next cell reports all other deaths."""
        for handle in self.all:
            if handle.worker is worker and (reason := idle_reason(handle)):
                self._on_notice(f"worker {worker.name} was stopped: it {reason}. The next cell starts it again.")

    async def _refill(self, handle: WorkerHandle, progress: Progress) -> bool:
        """Restart the dead ranks of a worker. Return False if the worker itself is lost."""
        lost = [kernel for kernel in handle.kernels if not kernel.alive]
        for kernel in lost:
            progress(
                f"rank {kernel.rank} on worker {handle.worker.name} is gone ({kernel.death}); "
                "starting it again, with empty variables"
            )
            await kernel.close()
        # A worker may be unreachable only because the proxy is restarting. Wait for the worker instead of replacing it
        # immediately, because its other ranks may still be computing.
        if isinstance(await handle.worker.find_again(), str):
            return False
        # A kernel that was only unreachable is still running and occupies its slot.
        await asyncio.gather(*(handle.worker.stop_kernel(kernel.kernel_id) for kernel in lost))
        opened = await self._kernels(handle.worker, {kernel.slot: None for kernel in lost})
        fresh = {kernel.slot: kernel for kernel in opened}
        kernels = [fresh.get(kernel.slot, kernel) for kernel in handle.kernels]
        self.all[self.all.index(handle)] = replace(handle, kernels=kernels)
        return True

    async def _replace(self, gone: Sequence[WorkerHandle], progress: Progress) -> None:
        """Restart lost workers in one call, because the workers of one call leave the queue for GPUs together."""
        for handle in gone:
            progress(f"worker {handle.worker.name} {idle_reason(handle) or 'is gone as well'}; starting it again")
        names = [handle.worker.name for handle in gone]
        await self._source.stop(names)
        for handle, fresh in zip(gone, await self._start(names, progress), strict=True):
            self.all[self.all.index(handle)] = fresh


async def _disconnect(kernels: Sequence[RankKernel]) -> None:
    await asyncio.gather(*(kernel.close() for kernel in kernels))


async def _info_of(worker: Worker) -> WorkerInfo | None:
    try:
        async with asyncio.timeout(INFO_SECONDS):
            return await worker.info()
    except (WorkerStartError, TimeoutError):
        return None


def idle_reason(handle: WorkerHandle) -> str:
    """Return why the hub stopped an idle worker, as a phrase to follow "it", or "" if the hub did not stop it."""
    idle, limit = min(kernel.idle_seconds for kernel in handle.kernels), handle.info.idle_minutes
    if limit and idle >= limit * 60:
        return f"had been idle for {duration_text(idle)}, and this hub stops workers after {limit:g} minutes"
    return ""


def worker_name(cluster: str, index: int) -> str:
    """Return the name of a cluster's worker, which is ``<cluster>-w<index>``."""
    return f"{cluster}-w{index}"
