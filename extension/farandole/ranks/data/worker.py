"""Runs a Dask worker in threads of a rank's process, so that its tasks share their data with the cells of the rank."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import cache
from typing import Any

import dask
from distributed import Worker
from distributed.comm.addressing import get_address_host
from distributed.core import Status
from distributed.threadpoolexecutor import ThreadPoolExecutor
from distributed.utils import get_ip

from farandole.exceptions import DaskError
from farandole.files.dask_settings import MemorySecurity, log_errors_only
from farandole.files.private import private_folder
from farandole.ranks import context
from farandole.ranks.data.memory import memory_limit, release_free_memory
from farandole.ranks.world.cores import threads

START_SECONDS = 60.0
CLOSE_SECONDS = 10.0
DEFAULTS = {
    "distributed": {
        # A cell that holds the GIL for a long time delays the answers of the Dask worker in its process.
        "comm": {"timeouts": {"connect": "300s", "tcp": "300s"}},
        # Dask would wake the rank up to a hundred times a second for these measurements, also during a training cell.
        "worker": {"profile": {"enabled": False}, "http": {"routes": []}},
        "admin": {"tick": {"interval": "1s"}},
    }
}
"""Defaults of Dask's configuration in a rank's process. Users' own settings have precedence."""
LOOPBACK = "127.0.0.1:0"
"""The address of the Dask worker's HTTP server, which cannot be turned off and has no pages."""
SCRATCH = "farandole-dask"
RELEASE_SECONDS = 1.0
MOST_RELEASE_SECONDS = 60.0


class PausableThreadPoolExecutor(ThreadPoolExecutor):
    """Threads that run tasks, and that begin no task while they are paused.

    Dask recognizes an executor of threads by the name of its class.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, thread_name_prefix="farandole-dask")  # type: ignore[no-untyped-call]
        self._open = threading.Event()
        self._open.set()
        self._ended = False

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

    def submit(  # type: ignore[override]  # the class of distributed, which has no types, names its first parameter
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Run a task in a thread, as soon as there is one and the executor is not paused."""

        def run() -> Any:
            self._open.wait()
            if self._ended:
                raise CancelledError("Dask has ended on this rank")
            return function(*args, **kwargs)

        future: Future[Any] = super().submit(run)  # type: ignore[no-untyped-call]
        return future

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """End the threads. Tasks that wait for the end of a pause do not begin."""
        self._ended = True
        self.resume()
        super().shutdown(*args, **kwargs)  # type: ignore[no-untyped-call]


class DataWorker:
    """A Dask worker, its threads for tasks, and the thread of its event loop.

    It ends when its scheduler ends, or when `close` is called.
    """

    def __init__(self, scheduler: str, security: dict[str, str]) -> None:
        self.executor = PausableThreadPoolExecutor(threads())
        self._scheduler = scheduler
        self._security = MemorySecurity(**security)
        self._address: Future[str] = Future()
        self._worker: Worker | None = None
        self._thread = threading.Thread(target=self._run, name="farandole-dask-loop", daemon=True)
        self._thread.start()
        # The end of the process would stop the thread while it removes its files.
        atexit.register(self.close)

    def address(self) -> str:
        """Wait until the worker has joined its scheduler, and return its address.

        Raises DaskError if it cannot start, or cannot reach the scheduler.
        """
        try:
            return self._address.result(START_SECONDS + CLOSE_SECONDS)
        except TimeoutError as exc:
            raise DaskError(
                f"this rank cannot reach Dask's scheduler in the notebook at {self._scheduler} ({exc}); open the ports "
                "between the machines of notebooks and workers"
            ) from exc
        except (OSError, RuntimeError) as exc:
            raise DaskError(f"Dask cannot start on this rank: {exc.__cause__ or exc}") from exc

    def close(self) -> None:
        """Leave the scheduler, and end the threads."""
        atexit.unregister(self.close)
        if (worker := self._worker) is not None:
            asyncio.run_coroutine_threadsafe(worker.close(executor_wait=False), self._loop)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            worker = await self._start()
        except BaseException as exc:  # noqa: BLE001 - `address` raises it in another thread
            self._address.set_exception(exc)
            return
        # Heartbeats bring this to the scheduler, where the driver's `TaskMonitor` reads it and the worker's name.
        worker.metrics["farandole_paused"] = lambda _: self.executor.paused
        self._worker = worker
        self._address.set_result(str(worker.address))
        releasing = asyncio.create_task(_end_pauses(worker))
        await worker.finished()
        releasing.cancel()
        # Its results would otherwise stay in memory until the rank starts Dask again.
        self._worker = None

    async def _start(self) -> Worker:
        _set_defaults()
        worker: Worker = await Worker(
            self._scheduler,
            host=get_ip(get_address_host(self._scheduler)),
            name=f"{context.worker()}/{os.getpid()}",
            nthreads=threads(),
            executor=self.executor,
            memory_limit=memory_limit(),
            local_directory=dask.config.get("temporary-directory") or str(private_folder(SCRATCH)),
            security=self._security,
            dashboard_address=LOOPBACK,
            death_timeout=START_SECONDS,
        )
        return worker


async def _end_pauses(worker: Worker) -> None:
    """Release free memory while too much is used for further tasks, which might wait forever otherwise.

    This slows down what allocates memory again, so it happens more rarely if it does not help.
    """
    pause = RELEASE_SECONDS
    while True:
        await asyncio.sleep(pause)
        if worker.status == Status.paused:
            await asyncio.to_thread(release_free_memory)
            pause = min(2 * pause, MOST_RELEASE_SECONDS)
        else:
            pause = RELEASE_SECONDS


@cache
def _set_defaults() -> None:
    dask.config.update_defaults(DEFAULTS)
    # The cells of the rank would show what Dask logs about each connection and each shuffle.
    log_errors_only()
