"""Runs a Dask worker in threads of a rank's process, so that its tasks share their data with the cells of the rank."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import dask
from distributed import Security, Worker
from distributed.comm import get_address_host
from distributed.threadpoolexecutor import ThreadPoolExecutor
from distributed.utils import get_ip

from farandole.exceptions import DaskError
from farandole.ranks import context
from farandole.ranks.preflight.machine import memory
from farandole.ranks.world.cores import threads

START_SECONDS = 60.0
CLOSE_SECONDS = 10.0
CONFIG = {
    # A cell that holds the GIL for a long time delays the answers of the Dask worker in its process.
    "distributed.comm.timeouts.connect": "300s",
    "distributed.comm.timeouts.tcp": "300s",
}
"""Settings of Dask in a rank's process."""
LOOPBACK = "127.0.0.1:0"
"""The address of the Dask worker's HTTP server, which cannot be turned off."""


class PausableThreadPoolExecutor(ThreadPoolExecutor):  # type: ignore[misc]  # distributed has no types
    """Threads that run tasks, and that begin no task while they are paused.

    Dask recognizes an executor of threads by the name of its class.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, thread_name_prefix="farandole-dask")
        self._open = threading.Event()
        self._open.set()

    @property
    def paused(self) -> bool:
        """Whether tasks wait until `resume` is called."""
        return not self._open.is_set()

    def pause(self) -> None:
        """Begin no further task. Tasks that are running continue."""
        self._open.clear()

    def resume(self) -> None:
        """Begin the tasks that are waiting."""
        self._open.set()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a task in a thread, as soon as there is one and the executor is not paused."""

        def run() -> Any:
            self._open.wait()
            return function(*args, **kwargs)

        return super().submit(run)

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """End the threads, also those that wait for the end of a pause."""
        self.resume()
        super().shutdown(*args, **kwargs)


class DataWorker:
    """A Dask worker, its threads for tasks, and the thread of its event loop.

    It ends when its scheduler ends, or when `close` is called.
    """

    def __init__(self, scheduler: str, security: dict[str, str]) -> None:
        self.executor = PausableThreadPoolExecutor(threads())
        self._scheduler = scheduler
        self._security = Security(require_encryption=True, **security)
        self._worker: Future[Worker] = Future()
        self._thread = threading.Thread(target=self._run, name="farandole-dask-loop", daemon=True)
        self._thread.start()

    def address(self) -> str:
        """Wait until the worker has joined its scheduler, and return its address.

        Raises DaskError if the scheduler cannot be reached.
        """
        try:
            return str(self._worker.result().address)
        except (OSError, TimeoutError) as exc:
            raise DaskError(
                f"this rank cannot reach Dask's scheduler in the notebook at {self._scheduler} ({exc}); open the ports "
                "between the machines of notebooks and workers"
            ) from exc

    def close(self) -> None:
        """Leave the scheduler, and end the threads."""
        if self._thread.is_alive() and self._worker.done() and not self._worker.exception():
            worker = self._worker.result()
            asyncio.run_coroutine_threadsafe(worker.close(executor_wait=False), self._loop)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The cells of the rank would show what Dask logs about each connection.
        logging.getLogger("distributed").setLevel(logging.WARNING)
        try:
            with dask.config.set(CONFIG):
                worker = await Worker(
                    self._scheduler,
                    host=get_ip(get_address_host(self._scheduler)),
                    name=f"{context.worker()}/{os.getpid()}",
                    nthreads=threads(),
                    executor=self.executor,
                    memory_limit=memory_limit(),
                    security=self._security,
                    dashboard_address=LOOPBACK,
                    death_timeout=START_SECONDS,
                )
        except BaseException as exc:  # noqa: BLE001 - `address` raises it in another thread
            self._worker.set_exception(exc)
            return
        # Heartbeats bring this to the scheduler, where the driver's `TaskMonitor` reads it and the worker's name.
        worker.metrics["farandole_paused"] = lambda _: self.executor.paused
        self._worker.set_result(worker)
        await worker.finished()


def memory_limit() -> int:
    """Return this rank's share of the memory in bytes: of its container's limit, or of the machine."""
    import psutil

    _, limit = memory()
    return min(limit // context.local_size(), psutil.virtual_memory().total // context.machine_size())
