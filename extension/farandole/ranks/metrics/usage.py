"""Samples the resource usage of this process: CPU, memory and, if torch uses one, the GPU."""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Any

from farandole import protocol

if TYPE_CHECKING:
    import psutil


def sample(rank: int) -> dict[str, Any]:
    """Return a usage record. The CPU usage is in percent of one core since the last sample, and memory is in bytes."""
    process = _process()
    record = {
        "kind": protocol.Kind.USAGE,
        "rank": rank,
        "time": time.time(),
        "cpu_percent": process.cpu_percent(),
        "memory_bytes": process.memory_info().rss,
    }
    return record | _gpu()


@functools.cache
def _process() -> psutil.Process:
    import psutil

    process = psutil.Process()
    process.cpu_percent()  # the first call only starts the interval and returns 0
    return process


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
