"""Runs Dask on the ranks of a cluster: the scheduler in a thread of this process, and a Dask worker in each rank."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import dask
from distributed import Client, Scheduler, Security

from farandole.driver.core.core import ClusterCore
from farandole.driver.data.monitor import TaskMonitor
from farandole.driver.data.status import DaskStatus
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.loop import LoopThread
from farandole.driver.workers.worker import Progress
from farandole.driver.world.backends.base import LOOPBACK
from farandole.exceptions import FarandoleError, UsageError

T = TypeVar("T")

JOIN_SECONDS = 90.0
LEAVE_SECONDS = 60.0
ACTIVE_SECONDS = 20.0
"""Seconds between two requests to a rank whose Dask worker has tasks, so that its server does not count as idle."""
ROLES = ("scheduler", "worker", "client")
DASHBOARD = "127.0.0.1:0"
"""The address of the scheduler's HTTP server, with Dask's dashboard if bokeh is installed."""


class DataEngine:
    """Dask on the ranks of one cluster. `close` ends it.

    - Each engine has its own certificate, which exists only in the memory of this process and of the ranks. Whoever
      connects without it is refused, in both directions.
    - All methods except `client` must be called on the core's event loop.
    """

    def __init__(self, core: ClusterCore, *, pauses: bool, progress: Progress) -> None:
        self._core = core
        self._pauses = pauses
        self._progress = progress
        self._security = Security.temporary()
        # The notebook would show what the scheduler logs about each connection.
        logging.getLogger("distributed").setLevel(logging.WARNING)
        self._loop = LoopThread("farandole-dask")
        self._scheduler: Scheduler | None = None
        self._monitor = TaskMonitor()
        self._active: asyncio.Task[None] | None = None
        self._addresses: dict[RankKernel, str] = {}

    @property
    def status(self) -> DaskStatus:
        """Dask's tasks and data a second ago, or earlier if the scheduler is busy. Any thread may read this."""
        return self._monitor.status

    async def start(self) -> None:
        """Start the scheduler, and a Dask worker on each rank.

        Raises:
            UsageError: this driver runs outside the hub, where ranks cannot reach it.
            RankError: a rank cannot start its Dask worker.
        """
        if self._core.source.outside:
            raise UsageError(
                "Dask needs connections from the workers to this process, which a hub does not pass on to another "
                "machine; run the notebook on the hub."
            )
        self._scheduler = await self._there(_scheduler(self._security, self._own_address(), self._monitor))
        await self._join()
        self._active = asyncio.create_task(self._stay_active())

    def client(self) -> Client:
        """Return a new client of this process, which becomes Dask's default."""
        return Client(self._scheduler.address, security=self._security, name=f"farandole-{self._core.name}")

    async def join(self) -> None:
        """Start a Dask worker on each rank that has none. Only report a failure, because cells can still run."""
        try:
            await self._join()
        except FarandoleError as exc:
            self._progress(f"Dask does not use all ranks: {exc}")

    async def leave(self, kernels: Sequence[RankKernel]) -> None:
        """Copy the data of these ranks to other ranks, and end their Dask workers, because the ranks will stop."""
        going = [address for kernel in kernels if (address := self._addresses.pop(kernel, None))]
        if not going:
            return
        try:
            await asyncio.wait_for(self._there(self._scheduler.retire_workers(going)), LEAVE_SECONDS)
        except TimeoutError:
            self._progress(
                f"Dask has not copied all data of the ranks that stop within {LEAVE_SECONDS:.0f} seconds; it computes "
                "what is lost again"
            )

    async def workers(self) -> dict[str, int]:
        """Return the rank of each Dask worker that is connected, by its address."""
        connected = await self._connected()
        return {address: kernel.rank for kernel, address in self._addresses.items() if address in connected}

    async def close(self) -> None:
        """End the scheduler. The Dask workers end when they lose it."""
        if self._active is not None:
            self._active.cancel()
        if self._scheduler is not None:
            await self._there(self._scheduler.close())
        self._loop.close()

    async def _join(self) -> None:
        connected = await self._connected()
        joined = {kernel for kernel, address in self._addresses.items() if address in connected}
        fresh = [kernel for kernel in self._core.group.kernels if kernel not in joined and kernel.alive]
        if not fresh:
            return
        call = rank_calls.start_data_worker(self._scheduler.address, _credentials(self._security), self._pauses)
        found = await self._core.group.control(
            call, what="starting Dask", timeout=JOIN_SECONDS, kernels=fresh, in_subshell=True
        )
        self._addresses |= dict(zip(fresh, found, strict=True))

    async def _connected(self) -> set[str]:
        return await self._there(_connected(self._scheduler))

    async def _stay_active(self) -> None:
        """Make a request to each rank whose Dask worker has tasks, again and again."""
        while True:
            await asyncio.sleep(ACTIVE_SECONDS)
            working = await self._there(_working(self._scheduler))
            kernels = [kernel for kernel, address in self._addresses.items() if address in working and kernel.alive]
            with suppress(FarandoleError):
                await self._core.group.control(
                    rank_calls.clock(), what="Dask's tasks", timeout=ACTIVE_SECONDS, kernels=kernels, in_subshell=True
                )

    def _own_address(self) -> str:
        """Return the address of this process that all workers reach."""
        for handle in self._core.handles:
            there = handle.info.address or LOOPBACK
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                # Connecting a datagram socket sends nothing, but finds the address that the system would send from.
                probe.connect((there, 9))
                own = str(probe.getsockname()[0])
            if own != there:
                return own
        return LOOPBACK

    async def _there(self, work: Awaitable[T]) -> T:
        """Await something on the loop of the scheduler."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(work), self._loop.loop))


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _connected(scheduler: Scheduler) -> set[str]:
    return set(scheduler.workers)


async def _working(scheduler: Scheduler) -> set[str]:
    return {worker.address for worker in scheduler.workers.values() if worker.processing}


async def _scheduler(security: Security, host: str, monitor: TaskMonitor) -> Scheduler:
    if "JUPYTERHUB_SERVICE_PREFIX" in os.environ:
        # The dashboard is on the loopback interface. jupyter-server-proxy brings it to the user's browser.
        dask.config.set({"distributed.dashboard.link": "{JUPYTERHUB_SERVICE_PREFIX}proxy/{port}/status"})
    return await Scheduler(protocol="tls", host=host, security=security, dashboard_address=DASHBOARD, plugins=[monitor])


def _credentials(security: Security) -> dict[str, Any]:
    """Return the arguments with which a rank makes the same `Security`."""
    names = ("tls_ca_file", *(f"tls_{role}_{kind}" for role in ROLES for kind in ("cert", "key")))
    return {name: getattr(security, name) for name in names}
