"""Runs Dask on the ranks of a cluster: the scheduler in a thread of this process, and a Dask worker in each rank."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import dask
from distributed import Client, Scheduler, Security
from distributed.core import Status

from farandole.driver.core.core import ClusterCore
from farandole.driver.data.certificate import credentials, new_security
from farandole.driver.data.monitor import TaskMonitor
from farandole.driver.data.status import DaskStatus
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.loop import LoopThread
from farandole.driver.workers.worker import Progress
from farandole.driver.world.backends.base import LOOPBACK
from farandole.exceptions import FarandoleError, NoClusterError, RankDiedError, UsageError
from farandole.files.dask_settings import log_errors_only
from farandole.files.private import private_folder

T = TypeVar("T")

JOIN_SECONDS = 90.0
LEAVE_SECONDS = 60.0
CLOSE_SECONDS = 30.0
END_SECONDS = 15.0
LOOK_SECONDS = 1.0
"""How often the engine looks whether a rank or its Dask worker is lost."""
RETRY_SECONDS = 10.0
"""The pause after a failed attempt to replace them."""
ACTIVE_SECONDS = 20.0
"""Seconds between two requests to a rank whose Dask worker has tasks, so that its server does not count as idle."""
SILENT_SECONDS = 300
"""How long a connection to a rank may be silent. A cell that holds the GIL delays all answers of its rank."""
DASHBOARD = "127.0.0.1:0"
"""The address of the scheduler's HTTP server, which has pages only if bokeh is installed."""
SCRATCH = "farandole-dask"


class DataEngine:
    """Dask on the ranks of one cluster. `close` ends it.

    - Each engine has its own certificate, which exists only in the memory of this process and of the ranks.
      Connections without it are refused in both directions.
    - While tasks wait, lost ranks are replaced as before a cell, because the notebook may be waiting for the tasks.
    - All methods except `client` must be called on the core's event loop.
    """

    def __init__(self, core: ClusterCore, *, pauses: bool, progress: Progress) -> None:
        self.pauses = pauses
        """Whether tasks wait while a training cell runs."""
        self.left: set[str] = set()
        """The addresses of the Dask workers that were ended with `leave`. All others that are missing are lost."""
        self._core = core
        self._progress = progress
        self._security = new_security()
        self._loop = LoopThread("farandole-dask")
        self._scheduler: Scheduler | None = None
        self._monitor = TaskMonitor()
        self._addresses: dict[RankKernel, str] = {}
        self._leaving: set[RankKernel] = set()
        # The next cell, a job, and the loop that replaces ranks may notice a missing Dask worker at the same time.
        self._joining = asyncio.Lock()
        self._care: list[asyncio.Task[None]] = []

    @property
    def status(self) -> DaskStatus:
        """Dask's tasks and data a second ago, or earlier if the scheduler is busy. Any thread may read this."""
        return self._monitor.status

    @property
    def running(self) -> bool:
        """Whether the scheduler runs. It also ends if the user calls `shutdown` of the client."""
        return self._scheduler is not None and bool(self._scheduler.status == Status.running)

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
        _set_defaults()
        self._scheduler = await self._there(_scheduler(self._security, self._own_address(), self._monitor))
        await self._join()
        self._care = [asyncio.create_task(self._stay_active()), asyncio.create_task(self._stay_complete())]

    def client(self) -> Client:
        """Return a new client of this process, which becomes Dask's default."""
        return Client(self._started.address, security=self._security, name=f"farandole-{self._core.name}")

    async def set_pauses(self, *, pauses: bool) -> None:
        """Set whether tasks wait while a training cell runs."""
        self.pauses = pauses
        call = rank_calls.set_data_pauses(pauses)
        await self._core.group.control(call, what="changing Dask", timeout=JOIN_SECONDS, in_subshell=True)

    async def join(self) -> None:
        """Start a Dask worker on each rank that has none. Only report a failure, because cells can still run."""
        try:
            await self._join()
        except FarandoleError as exc:
            self._progress(f"Dask does not use all ranks: {exc}")

    async def leave(self, kernels: Sequence[RankKernel]) -> None:
        """Copy the data of these ranks to other ranks, and end their Dask workers, because the ranks will stop."""
        self._leaving.update(kernels)
        if not self.running:
            return
        # While this waits, `_lacking` may forget the addresses of ranks that leave.
        own = [self._addresses.get(kernel, "") for kernel in kernels]
        going = sorted({*own} & await self._connected())
        for kernel in kernels:
            self._addresses.pop(kernel, None)
        self.left.update(going)
        try:
            left = await asyncio.wait_for(self._there(self._started.retire_workers(going)), LEAVE_SECONDS)
        except TimeoutError:
            left = {}
        if len(left) < len(going):
            self._progress(
                "Dask could not copy all data of the ranks that stop to other ranks; it computes what is lost again"
            )

    async def workers(self) -> dict[str, int]:
        """Return the rank of each Dask worker that is connected, by its address."""
        connected = await self._connected()
        return {address: kernel.rank for kernel, address in self._addresses.items() if address in connected}

    async def close(self) -> None:
        """End the scheduler and the Dask workers, which remove their files."""
        for task in self._care:
            task.cancel()
        if self._care:
            await asyncio.wait(self._care)
        if self._scheduler is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._there(self._scheduler.close()), CLOSE_SECONDS)
            await self._end_workers(self._scheduler.address)
        self._loop.close()

    async def _end_workers(self, scheduler: str) -> None:
        """Wait for the end of the Dask workers, because a rank that ends meanwhile would leave their files."""
        kernels = [kernel for kernel in self._addresses if kernel.alive]
        if not kernels:
            return
        call = rank_calls.end_data_worker(scheduler)
        # The driver disconnects even if a rank is lost or does not answer in time.
        with suppress(FarandoleError):
            await self._core.group.control(
                call, what="ending Dask", timeout=END_SECONDS, kernels=kernels, in_subshell=True
            )

    async def _join(self) -> None:
        async with self._joining:
            lacking = await self._lacking()
            tries = await asyncio.gather(*map(self._start_on, lacking), return_exceptions=True)
        # Raise errors only after all starts have ended, so that a retry does not start Dask twice on a rank.
        for failure in tries:
            if isinstance(failure, BaseException):
                raise failure

    async def _start_on(self, kernel: RankKernel) -> None:
        call = rank_calls.start_data_worker(self._started.address, credentials(self._security), self.pauses)
        [address] = await self._core.group.control(
            call, what="starting Dask", timeout=JOIN_SECONDS, kernels=[kernel], in_subshell=True
        )
        self._addresses[kernel] = address
        self.left.discard(address)

    async def _lacking(self) -> list[RankKernel]:
        """Return the living ranks whose Dask worker is missing. The scheduler forgets those of dead ranks."""
        if not self.running:
            return []
        connected = await self._connected()
        # Ranks may have begun to leave meanwhile.
        self._leaving &= set(self._core.group.kernels)
        kernels = [one for one in self._core.group.kernels if one.alive and one not in self._leaving]
        self._addresses = {kernel: address for kernel, address in self._addresses.items() if kernel in kernels}
        return [kernel for kernel in kernels if self._addresses.get(kernel) not in connected]

    async def _connected(self) -> set[str]:
        """Return the addresses of the Dask workers that are connected, after those of dead ranks are removed."""
        dead = {address for kernel, address in self._addresses.items() if not kernel.alive}
        return await self._there(_connected(self._started, dead))

    async def _stay_complete(self) -> None:
        """Replace lost ranks while tasks wait, and start Dask on ranks that lack it. End with the cluster."""
        problem = ""
        while not self._core.ended:
            await asyncio.sleep(RETRY_SECONDS if problem else LOOK_SECONDS)
            try:
                await self._complete()
                problem = ""
            except RankDiedError:
                # The scheduler has lost the Dask worker before the driver knows that its rank is lost.
                continue
            except NoClusterError as exc:
                # The cluster was stopped after the condition of this loop was checked.
                self._progress(f"Dask ends: {exc}")
                break
            except Exception as exc:  # noqa: BLE001 - after an unexpected error, no lost rank would be replaced again
                text = f"Dask cannot use all ranks now, and tries again: {_first_line(exc)}"
                problem = self._reported(text, problem)
        # Otherwise a notebook that waits for a task would wait forever.
        await self._there(self._started.close())

    async def _complete(self) -> None:
        core, status = self._core, self.status
        if core.group.dead and not core.busy and self.running and status.done + status.failed < status.tasks:
            await core.replace_lost(self._progress)
        if core.world is not None and core.world.formed:
            await self._join()

    async def _stay_active(self) -> None:
        """Make a request to each rank whose Dask worker has tasks, again and again."""
        problem = ""
        while True:
            await asyncio.sleep(ACTIVE_SECONDS)
            try:
                await self._show_activity()
                problem = ""
            except FarandoleError:
                # A rank is lost, or a cell that holds the GIL delays its answer.
                continue
            except Exception as exc:  # noqa: BLE001 - after an unexpected error, busy servers would count as idle
                text = f"servers whose ranks have tasks of Dask may count as idle: {_first_line(exc)}"
                problem = self._reported(text, problem)

    async def _show_activity(self) -> None:
        working = await self._there(_working(self._started))
        kernels = [kernel for kernel, address in self._addresses.items() if address in working and kernel.alive]
        if kernels:
            await self._core.group.control(
                rank_calls.clock(), what="Dask's tasks", timeout=ACTIVE_SECONDS, kernels=kernels, in_subshell=True
            )

    def _reported(self, problem: str, known: str) -> str:
        """Report a problem, unless it is the one that was reported last, and return it."""
        if problem != known:
            self._progress(problem)
        return problem

    @property
    def _started(self) -> Scheduler:
        assert self._scheduler is not None, "the engine has not started"
        return self._scheduler

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


def _first_line(error: Exception) -> str:
    text = str(error) if isinstance(error, FarandoleError) else f"{type(error).__name__}: {error}"
    return text.partition("\n")[0]


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _connected(scheduler: Scheduler, dead: set[str]) -> set[str]:
    # The scheduler itself would wait minutes for a machine that is gone.
    for address in dead:
        await scheduler.remove_worker(address, stimulus_id="farandole-rank-lost")
    return set(scheduler.workers)


async def _working(scheduler: Scheduler) -> set[str]:
    return {worker.address for worker in scheduler.workers.values() if worker.processing}


def _has_pages() -> bool:
    """Return whether the scheduler's dashboard can have pages, which need bokeh."""
    return find_spec("bokeh") is not None


async def _scheduler(security: Security, host: str, monitor: TaskMonitor) -> Scheduler:
    has_pages = _has_pages()
    # The route of the proxy passes requests on to other machines.
    routes = [one for one in dask.config.get("distributed.scheduler.http.routes") if not one.endswith(".proxy")]
    own = {"distributed.scheduler.http.routes": routes if has_pages else [], "distributed.admin.tick.interval": "1s"}
    with dask.config.set(own):
        scheduler: Scheduler = await Scheduler(
            protocol="tls",
            host=host,
            security=security,
            dashboard=has_pages,
            dashboard_address=DASHBOARD,
            local_directory=dask.config.get("temporary-directory") or str(private_folder(SCRATCH)),
            plugins=[monitor],
            timeout=SILENT_SECONDS,
        )
    return scheduler


@cache
def _set_defaults() -> None:
    """Change defaults of Dask's configuration in this process. Users' own settings have precedence."""
    changed: dict[str, Any] = {"comm": {"timeouts": {"tcp": f"{SILENT_SECONDS}s"}}}
    if not _has_pages():
        # The client shows no link then.
        changed["dashboard"] = {"link": ""}
    elif "JUPYTERHUB_SERVICE_PREFIX" in os.environ:
        # The dashboard is on the loopback interface. jupyter-server-proxy brings it to the user's browser.
        changed["dashboard"] = {"link": "{JUPYTERHUB_SERVICE_PREFIX}proxy/{port}/status"}
    dask.config.update_defaults({"distributed": changed})
    # The notebook would show what Dask logs about each connection and each shuffle.
    log_errors_only()
