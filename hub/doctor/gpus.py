"""Check that the engine can provide GPUs and that the host has the GPUs that FARANDOLE_GPUS lists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.doctor.command import output
from hub.doctor.finding import Finding, fault, ok, warning
from spawner_config.gpus.model import EXAMPLE, parse_gpus
from spawner_config.gpus.requests import KIND, offered_form
from spawner_config.settings import ProfileError

if TYPE_CHECKING:
    from hub.doctor.deployment import Deployment

CHECK = "gpus"
COMMAND_SECONDS = 60
"""The time limit for `nvidia-smi`, whose first run after the machine has started is slow."""
INDEX = re.compile(r"^GPU (\d+):", re.MULTILINE)
UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9A-Za-z-]+)")
NODE = re.compile(r"nvidia(\d+)")
TOOLKIT = (
    "Install NVIDIA's container toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl "
    "restart docker\nIf only NVIDIA's hook is installed, set FARANDOLE_GPU_REQUEST=nvidia in .env."
)


def check_gpus(deployment: Deployment, info: dict[str, Any]) -> Finding:
    """Check the GPUs in FARANDOLE_GPUS against the engine and the host."""
    return judge_gpus(deployment, info, host_gpus(info))


def judge_gpus(deployment: Deployment, info: dict[str, Any], there: frozenset[str]) -> Finding:
    """Compare FARANDOLE_GPUS with the engine's ``info`` and with ``there``, the ids of the host's GPUs."""
    try:
        wanted = [gpu.id for gpu in parse_gpus(deployment.get("FARANDOLE_GPUS"))]
    except ProfileError as exc:
        return fault(CHECK, str(exc), f"Set it as {EXAMPLE} ; `nvidia-smi -L` lists the ids.")
    if not wanted:
        hint = f"; this machine has {len(there)}, which .env assigns to no one" if there else ""
        return ok(CHECK, f"FARANDOLE_GPUS is empty{hint}")
    if deployment.get("FARANDOLE_DEPLOYMENT") == "swarm":
        return ok(
            CHECK,
            f"FARANDOLE_GPUS names {len(wanted)} on all machines together; `docker node inspect NODE` shows "
            "which GPUs a machine gives to the swarm",
        )
    form = _form(deployment.get("FARANDOLE_GPU_REQUEST"), info)
    if form is None:
        return fault(CHECK, "The engine cannot give GPUs to containers.", TOOLKIT)
    return _judge_ids(wanted, there, form)


def _form(request: str, info: dict[str, Any]) -> str | None:
    """Return the form in which the spawner requests GPUs from the engine, or None if the engine does not support it."""
    if request == "auto":
        return offered_form(info)
    return None if request == "cdi" and not info.get("CDISpecDirs") else request


def _judge_ids(wanted: list[str], there: frozenset[str], form: str) -> Finding:
    missing = [gpu for gpu in wanted if gpu not in there]
    if not there:
        return warning(CHECK, "The GPUs of the host cannot be listed.", "Install NVIDIA's driver: nvidia-smi -L")
    if missing:
        return fault(
            CHECK,
            f"FARANDOLE_GPUS names {', '.join(missing)}, and this host has {', '.join(sorted(there))}.",
            "Name GPUs that `nvidia-smi -L` lists.",
        )
    return ok(CHECK, f"{', '.join(wanted)} exist; requests to the engine use {form}")


def host_gpus(info: dict[str, Any]) -> frozenset[str]:
    """Return the indices and UUIDs of the host's GPUs, as listed by the driver, the engine or the device nodes."""
    if listed := output("nvidia-smi", "-L", seconds=COMMAND_SECONDS):
        return parse_list(listed)
    devices = (str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or [])
    found = [each.removeprefix(f"{KIND}=") for each in devices if each.startswith(f"{KIND}=")]
    nodes = (NODE.fullmatch(path.name) for path in Path("/dev").glob("nvidia*"))
    return frozenset([each for each in found if each != "all"] or [node[1] for node in nodes if node])


def parse_list(text: str) -> frozenset[str]:
    """Return the indices and UUIDs that `nvidia-smi -L` prints."""
    return frozenset([*INDEX.findall(text), *UUID.findall(text)])
