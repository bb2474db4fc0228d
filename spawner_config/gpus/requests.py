"""Requests for GPUs in the form that an engine supports: NVIDIA's runtime, or the Container Device Interface (CDI)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST_FORMS = ("auto", "nvidia", "cdi")
KIND = "nvidia.com/gpu"
REFUSALS = ("could not select device driver", "CDI device injection failed", "unknown device")
"""Phrases that occur in an engine's error message if it cannot attach a GPU to a starting container."""


def offered_form(info: dict[str, Any]) -> str | None:
    """Return the form of GPU requests that an engine supports, according to ``docker info``, or None."""
    if "nvidia" in (info.get("Runtimes") or {}):
        return "nvidia"
    devices = info.get("DiscoveredDevices")
    # Engines 25 to 28.2 report the CDI folders but not the devices, so assume that these engines have GPUs.
    found = devices is None or any(str(device.get("ID", "")).startswith(KIND) for device in devices)
    return "cdi" if info.get("CDISpecDirs") and found else None


def device_requests(form: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ``DeviceRequests`` for a container; ``ids`` are indices or UUIDs of GPUs."""
    names = [f"{KIND}={each}" for each in ids] if form == "cdi" else list(ids)
    return [{"driver": form, "device_ids": names, "capabilities": [["gpu"]]}]


def gpu_environment(env: dict[str, str], *, has_gpus: bool) -> dict[str, str]:
    """Return a server's environment in which NVIDIA_VISIBLE_DEVICES selects no GPUs, so that only the engine can do so.

    If the server has no GPUs, the variable is set to "void". Without this value, the server could get all GPUs if
    NVIDIA's runtime is the engine's default runtime and the image sets the variable.
    """
    rest = {name: value for name, value in env.items() if name != "NVIDIA_VISIBLE_DEVICES"}
    return rest if has_gpus else {**rest, "NVIDIA_VISIBLE_DEVICES": "void"}
