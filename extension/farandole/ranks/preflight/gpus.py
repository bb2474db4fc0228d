"""Reads the state of the GPUs that a rank sees from ``nvidia-smi``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

QUERY_SECONDS = 15.0
MIB = 2**20
FIELDS = "uuid,name,driver_version,temperature.gpu,ecc.errors.uncorrected.volatile.total,memory.used,memory.total"
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""Names of the field with the reasons for low clock speeds. Drivers before version 535 know only the second name."""
SLOWED = {0x08: "its hardware", 0x20: "heat", 0x40: "heat", 0x80: "its power supply"}
"""Bits of the field in `REASONS` that indicate a fault, and the cause of the low clock speed.

Other bits mean that the GPU is idle, that a setting limits its clocks, or that a busy GPU has reached its power cap.
Source: ``nvmlClocksThrottleReasons`` in NVIDIA's NVML reference.
"""
CONTEXT_BYTES = 2**30
"""Approximate GPU memory in bytes that a CUDA context uses in addition to the tensors of its process."""


def describe() -> dict[str, Any]:
    """Return the GPUs and this process's share of their memory. If nvidia-smi fails, ``error`` states why."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return _result([])
    try:
        answers = (_ask(command, f"{FIELDS},{reasons}") for reasons in REASONS)
        answer = next((answer for answer in answers if not answer.returncode), None) or _ask(command, FIELDS)
    except subprocess.TimeoutExpired:
        return _result([], f"nvidia-smi has not answered within {QUERY_SECONDS:g} s")
    if answer.returncode:
        words = (answer.stdout + answer.stderr).split()
        return _result([], f"nvidia-smi failed: {' '.join(words)[:200]}")
    return _result(parse(answer.stdout))


def _result(gpus: list[dict[str, Any]], error: str = "") -> dict[str, Any]:
    return {"gpus": gpus, "own_bytes": _own_bytes(), "error": error}


def _ask(command: str, fields: str) -> subprocess.CompletedProcess[str]:
    query = [command, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    return subprocess.run(query, capture_output=True, text=True, timeout=QUERY_SECONDS, check=False)


def parse(text: str) -> list[dict[str, Any]]:
    """Return a description of each GPU, given nvidia-smi's values of `FIELDS` and, optionally, of one of `REASONS`.

    The temperature and the number of errors are None if the GPU does not report them.
    """
    return [_gpu([cell.strip() for cell in line.split(",")]) for line in text.splitlines() if line.strip()]


def _gpu(cells: list[str]) -> dict[str, Any]:
    uuid, name, driver, temperature, errors, used, total, *reasons = cells
    return {
        "uuid": uuid,
        "name": name,
        "driver": driver,
        "celsius": _number(temperature),
        "ecc_errors": _number(errors),
        "slowed_by": _slowed_by(reasons[0]) if reasons else [],
        "used_bytes": (_number(used) or 0) * MIB,
        "total_bytes": (_number(total) or 0) * MIB,
    }


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None


def _slowed_by(cell: str) -> list[str]:
    try:
        reasons = int(cell, 16)
    except ValueError:  # this GPU does not report the reasons
        return []
    return sorted({word for bit, word in SLOWED.items() if reasons & bit})


def _own_bytes() -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return sum(int(torch.cuda.memory_reserved(device)) for device in range(torch.cuda.device_count())) + CONTEXT_BYTES
