"""Requests for GPUs to an engine in one of two forms: NVIDIA's runtime or hook, or the Container Device Interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST_FORMS = ("auto", "nvidia", "cdi")
KIND = "nvidia.com/gpu"
REFUSALS = ("could not select device driver", "CDI device injection failed", "unknown device")
"""Phrases in the errors of an engine that cannot attach a GPU to a starting container."""


def offered_form(info: dict[str, Any]) -> str | None:
    """Return the form of requests that an engine accepts, from its ``docker info``; None if it cannot attach GPUs."""
    if "nvidia" in (info.get("Runtimes") or {}):
        return "nvidia"
    devices = info.get("DiscoveredDevices")
    # Engines from 25 to 28.2 list the folders of the CDI files but not the devices.
    found = devices is None or any(str(device.get("ID", "")).startswith(KIND) for device in devices)
    return "cdi" if info.get("CDISpecDirs") and found else None


def device_requests(form: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ``DeviceRequests`` of a container for GPUs, given by index or UUID."""
    names = [f"{KIND}={each}" for each in ids] if form == "cdi" else list(ids)
    return [{"driver": form, "device_ids": names, "capabilities": [["gpu"]]}]


def gpu_environment(env: dict[str, str], *, has_gpus: bool) -> dict[str, str]:
    """Return a server's environment, in which only the engine can set the visible GPUs.

    If NVIDIA's runtime is the engine's default, an image that sets NVIDIA_VISIBLE_DEVICES would get all GPUs.
    """
    rest = {name: value for name, value in env.items() if name != "NVIDIA_VISIBLE_DEVICES"}
    return rest if has_gpus else {**rest, "NVIDIA_VISIBLE_DEVICES": "void"}
