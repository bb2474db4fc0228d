"""Workers without a hub: a private Jupyter server on this machine is the only worker."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp

from farandole.driver.workers.worker import Progress, Worker, WorkerOptions, WorkerSource
from farandole.exceptions import ClusterExistsError, FarandoleError, UsageError, WorkerStartError
from farandole.server.worker.args import WORKER_ARGS
from farandole.server.worker.lifeline import LIFELINE_VARIABLE

LOCAL_STOP_SECONDS = 10.0
"""How many seconds the server may take to exit. Meanwhile it stops its kernels and copies the journals of runs into the
runs' folders."""


class LocalWorkers(WorkerSource):
    """One Jupyter server on loopback, with a random token. The server ends when the driver ends.

    The user's own Jupyter server is not used, because it may silently restart dead kernels and drop output, and scripts
    and other editors have no such server.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._server: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._worker: Worker | None = None
        self._cluster = ""

    async def start(
        self, names: Sequence[str], options: WorkerOptions, progress: Progress, timeout: float
    ) -> list[Worker]:
        """Start the only worker."""
        if len(names) != 1:
            raise UsageError(
                f"without a hub, this machine is the only worker, so {len(names)} workers cannot be started; use more "
                "`--ranks` instead"
            )
        if self._server is not None:
            raise ClusterExistsError(
                "without a hub, this machine is the only worker, and it is already running; for more ranks, use "
                "`%cluster stop`, then `%cluster start --local --ranks N`"
            )
        port, token = _free_port(), secrets.token_hex(32)
        log = Path(tempfile.mkstemp(prefix="farandole-local-", suffix=".log")[1])
        self._launch(names[0], options, port, token, log)
        url = f"http://127.0.0.1:{port}/"
        worker = Worker(name=names[0], url=url, token=token, session=self._session, presence=self._presence)
        try:
            await self._wait_until_ready(worker, log, timeout)
        except BaseException:
            await self.stop(names)
            raise
        finally:
            log.unlink()
        self._worker, self._cluster = worker, options.cluster
        progress(f"worker {worker.name} is ready on this machine")
        return [worker]

    async def find(self, cluster: str) -> list[Worker]:
        """Return a list with the worker if it runs and belongs to this cluster, otherwise an empty list."""
        if self._worker is None or self._cluster != cluster or self._server is None or self._server.poll() is not None:
            return []
        return [self._worker]

    async def names(self, cluster: str) -> list[str]:
        """Return a list with the worker's name if it runs and belongs to this cluster, otherwise an empty list."""
        return [worker.name for worker in await self.find(cluster)]

    async def clusters(self) -> dict[str, int]:
        """Return the cluster's name with the number of its workers, 1, or an empty dict if no worker is running."""
        return {self._cluster: 1} if await self.find(self._cluster) else {}

    async def stop(self, _names: Sequence[str], /) -> None:
        """End the server and its kernels by closing the server's lifeline. Kill the server if that takes over 10 s."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self._server is not None:
            await asyncio.to_thread(_end, self._server)
        self._server = self._worker = None

    async def close(self) -> None:
        """Stop the worker, because no other driver could attach to it, and close the connections."""
        await self.stop([])
        await self._session.close()

    async def _presence(self) -> bool | None:
        return self._server is not None and self._server.poll() is None

    def _launch(self, name: str, options: WorkerOptions, port: int, token: str, log: Path) -> None:
        reader, self._lifeline = os.pipe()
        environment = os.environ | {
            LIFELINE_VARIABLE: str(reader),
            "FARANDOLE_WORKER": name,
            "FARANDOLE_CLUSTER": options.cluster,
            "FARANDOLE_RANKS": str(options.ranks or 1),
            "JUPYTER_TOKEN": token,
        }
        # The worker is not a server of the hub, so it must not inherit the notebook server's identity.
        for variable in [key for key in environment if key.startswith(("JUPYTERHUB_", "JPY_API_"))]:
            del environment[variable]
        command = [sys.executable, "-m", "farandole.server.worker", f"--port={port}", "--ip=127.0.0.1"]
        command += ["--no-browser", "--ServerApp.port_retries=0", *WORKER_ARGS]
        if os.geteuid() == 0:
            command.append("--allow-root")
        with log.open("wb") as output:
            self._server = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[reader],
                start_new_session=True,
            )
        os.close(reader)

    async def _wait_until_ready(self, worker: Worker, log: Path, timeout: float) -> None:
        assert self._server is not None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    with suppress(FarandoleError):
                        await worker.info()
                        return
                    if self._server.poll() is not None:
                        raise WorkerStartError(
                            f"the local worker ended while it was starting. The end of its log:\n{_tail(log)}"
                        )
                    await asyncio.sleep(0.05)
        except TimeoutError as exc:
            raise WorkerStartError(
                f"the local worker did not answer within {timeout:g} s. The end of its log:\n{_tail(log)}"
            ) from exc


def _end(server: subprocess.Popen[bytes]) -> None:
    try:
        server.wait(timeout=LOCAL_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
