"""Measures the resource usage of a worker's server, including its child processes, and the usage of the GPUs."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psutil

FRESH_SECONDS = 1.0
"""How long a sample is reused, in seconds. Rates over shorter intervals would be unreliable."""
GPU_SECONDS = 5.0
"""Time limit for ``nvidia-smi``, in seconds."""
MIB = 2**20
GPU_QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total"
Process = tuple[int, float]
"""The id and start time of a process. The id alone is not unique, because the system reuses ids."""


class UsageMeter:
    """Measures the usage of this process and its children. Rates are averages since the previous sample."""

    def __init__(self, command: str | None = None, clock: Callable[[], float] = time.time) -> None:
        """Use ``command`` instead of the ``nvidia-smi`` in PATH, if given."""
        self._command = command or shutil.which("nvidia-smi")
        self._clock = clock
        self._sample: dict[str, Any] | None = None
        self._cpu: dict[Process, float] = {}
        self._bytes = (0, 0)
        self._asking = asyncio.Lock()

    async def sample(self) -> dict[str, Any]:
        """Return the current usage as a ``Usage`` message; see `farandole.server.panel.wire`."""
        async with self._asking:
            last = self._sample
            if last is None or self._clock() - last["time"] >= FRESH_SECONDS:
                gpus = await self._gpus()
                self._sample = {**await asyncio.to_thread(self._measure, last), "gpus": gpus}
            assert self._sample is not None
            return self._sample

    def _measure(self, last: Mapping[str, Any] | None) -> dict[str, Any]:
        now = self._clock()
        cpu, memory = _processes()
        received, sent = _network()
        seconds = now - last["time"] if last else 0.0
        sample = {
            "time": now,
            "cpu": 100 * self._spent(cpu) / seconds if seconds else None,
            "cpus": float(os.environ.get("CPU_LIMIT") or os.cpu_count() or 1),
            "memory": memory,
            "memory_limit": int(os.environ.get("MEM_LIMIT") or psutil.virtual_memory().total),
            "received": max(0, received - self._bytes[0]) / seconds if seconds else None,
            "sent": max(0, sent - self._bytes[1]) / seconds if seconds else None,
        }
        self._cpu, self._bytes = cpu, (received, sent)
        return sample

    def _spent(self, cpu: Mapping[Process, float]) -> float:
        """Return the CPU seconds that running processes have used since the last sample."""
        return sum(max(0.0, seconds - self._cpu.get(process, 0.0)) for process, seconds in cpu.items())

    async def _gpus(self) -> list[dict[str, Any]]:
        if self._command is None:
            return []
        try:
            async with asyncio.timeout(GPU_SECONDS):
                asked = await asyncio.create_subprocess_exec(
                    self._command, GPU_QUERY, "--format=csv,noheader,nounits", stdout=-1, stderr=-3
                )
                try:
                    text, _ = await asked.communicate()
                finally:
                    with suppress(ProcessLookupError):
                        asked.kill()
        except (OSError, TimeoutError):
            return []
        return parse_gpus(text.decode(errors="replace")) if asked.returncode == 0 else []


def parse_gpus(text: str) -> list[dict[str, Any]]:
    """Parse lines of the form ``index, percent, MiB used, MiB total``. Values that are not reported become None."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [
        {
            "index": int(index),
            "percent": float(percent) if percent.isdigit() else None,
            "memory": int(used) * MIB if used.isdigit() else None,
            "memory_total": int(total) * MIB if total.isdigit() else None,
        }
        for index, percent, used, total in (row for row in rows if len(row) == 4 and row[0].isdigit())
    ]


def _processes() -> tuple[dict[Process, float], int]:
    """Return the CPU seconds of each process of this server, and the total memory of these processes in bytes."""
    cpu: dict[Process, float] = {}
    memory = 0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        # A process may end while it is being measured.
        with suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            memory += process.memory_info().rss
            cpu[process.pid, process.create_time()] = times.user + times.system
    return cpu, memory


def _network() -> tuple[int, int]:
    """Return the total bytes received and sent in this network namespace, without the loopback interface."""
    counters = psutil.net_io_counters(pernic=True, nowrap=False)
    outer = [counter for name, counter in counters.items() if name != "lo"]
    return sum(counter.bytes_recv for counter in outer), sum(counter.bytes_sent for counter in outer)
