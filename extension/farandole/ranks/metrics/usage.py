"""Samples the resource usage of this process: CPU, memory, the machine's network and, if torch uses one, the GPU."""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Any

from farandole import protocol

if TYPE_CHECKING:
    import psutil


def sample(rank: int) -> dict[str, Any]:
    """Return a usage record.

    The CPU usage is in percent of one core since the last sample, and memory is in bytes. The network traffic is that
    of the machine or container, in bytes per second since the last sample.
    """
    process = _process()
    record = {
        "kind": protocol.Kind.USAGE,
        "rank": rank,
        "time": time.time(),
        "cpu_percent": process.cpu_percent(),
        "memory_bytes": process.memory_info().rss,
    }
    return record | _network().rates() | _gpu() | model_memory()


@functools.cache
def model_memory() -> dict[str, int | None]:
    """Return the figures of the prepared model, which `farandole.ranks.training.memory` measures, in bytes by name.

    Every usage record of the run contains them.
    """
    return {}


@functools.cache
def _process() -> psutil.Process:
    import psutil

    process = psutil.Process()
    process.cpu_percent()  # the first call only starts the interval and returns 0
    return process


class Network:
    """Measures the network traffic of this machine or container, without the loopback interface."""

    def __init__(self) -> None:
        self._last = time.monotonic(), self._totals()

    def rates(self) -> dict[str, Any]:
        """Return the bytes received and sent per second since the last call, or nothing if they are unknown."""
        (then, before), (now, totals) = self._last, (time.monotonic(), self._totals())
        self._last = now, totals
        if not before or not totals or now <= then:
            return {}
        received, sent = (max(0, total - old) / (now - then) for total, old in zip(totals, before, strict=True))
        return {"received_bytes": round(received), "sent_bytes": round(sent)}

    def _totals(self) -> tuple[int, ...]:
        import psutil

        try:
            counters = psutil.net_io_counters(pernic=True, nowrap=False)
        except OSError:
            return ()
        outer = [counter for name, counter in counters.items() if name != "lo"]
        return sum(one.bytes_recv for one in outer), sum(one.bytes_sent for one in outer)


@functools.cache
def _network() -> Network:
    return Network()


def _gpu() -> dict[str, Any]:
    # A GPU is sampled only if torch uses it, because the first CUDA call takes seconds and hundreds of megabytes.
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return {}
    record: dict[str, Any] = {}
    try:
        free, total = torch.cuda.mem_get_info()
        record = {"gpu_memory_bytes": total - free, "gpu_memory_total_bytes": total}
        record["gpu_percent"] = float(torch.cuda.utilization())
    except Exception:  # noqa: BLE001 - naming NVML's exception classes would require importing NVML
        return record
    return record
