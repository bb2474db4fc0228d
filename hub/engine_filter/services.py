"""Rebuilds the body of `services/create`, so that a service has no privileges and one task that never restarts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hub.engine_filter.body import flag, nested, number, objects, one_of, rebuild, text, texts, texts_by_name
from hub.engine_filter.containers import GPU_VARIABLE, NO_GPU, environment, labels, user
from hub.engine_filter.mounts import MOUNT, owned
from hub.engine_filter.networks import check_own_name
from hub.engine_filter.refused import RefusedError
from spawner_config.labels import DATA_LABELS, HAS_DATA
from spawner_config.swarm.shared_home import whole

if TYPE_CHECKING:
    from hub.engine_filter.body import Check
    from hub.engine_filter.rules import Rules

CONSTRAINT = re.compile(r"(node\.id|node\.labels\.[A-Za-z_][A-Za-z0-9_.-]*)==[A-Za-z0-9_.:-]+")
SHARED_MEMORY = "/dev/shm"
MOST_PROCESSES = 32768


def constraints(where: str, value: Any) -> list[str]:
    """Check that all placement constraints concern a node's id or labels."""
    for item in texts(where, value):
        if not CONSTRAINT.fullmatch(item):
            raise RefusedError(
                f"{where} may not contain {item!r}: only constraints on a node's id and labels are admitted."
            )
    return texts(where, value)


def processes(where: str, value: Any) -> int:
    """Check that the maximum number of processes is between 1 and `MOST_PROCESSES`."""
    if not 0 < number(where, value) <= MOST_PROCESSES:
        raise RefusedError(f"{where} must be a number from 1 to {MOST_PROCESSES}.")
    return int(value)


def mounts(where: str, value: Any) -> list[dict[str, Any]]:
    """Check that each mount is a named volume, or a tmpfs at `SHARED_MEMORY`."""
    if not isinstance(value, list):
        raise RefusedError(f"{where} must be a list.")
    return [_mount(where, item) for item in value]


def _mount(where: str, item: Any) -> dict[str, Any]:
    if isinstance(item, dict) and item.get("Type") == "tmpfs":
        return rebuild(where, item, MEMORY_MOUNT)
    return rebuild(where, item, MOUNT)


def gpus(where: str, value: Any) -> list[dict[str, Any]]:
    """Check that each GPU request is for at least one GPU, because a task that requests none could get all GPUs."""
    asked: list[dict[str, Any]] = objects({"DiscreteResourceSpec": GPU_COUNT})(where, value)
    for item in asked:
        count = item.get("DiscreteResourceSpec", {})
        if "Kind" not in count or count.get("Value", 0) < 1:
            raise RefusedError(f"Each of {where} needs a DiscreteResourceSpec of Kind GPU with a Value of 1 or more.")
    return asked


def only_none(where: str, value: Any) -> dict[str, Any]:
    """Check that the health check is disabled, because the swarm would stop a server that is too busy to answer."""
    return rebuild(where, value, {"Test": one_of(["NONE"])})


MEMORY_MOUNT: dict[str, Check] = {
    "Type": one_of("tmpfs"),
    "Target": one_of(SHARED_MEMORY),
    "TmpfsOptions": nested({"SizeBytes": number}),
}
CONTAINER: dict[str, Check] = {
    "Image": text,
    "Args": texts,
    "Command": texts,
    "Env": environment,
    "User": user,
    "Mounts": mounts,
    "Labels": labels,
    "StopGracePeriod": number,
    "CapabilityDrop": texts,
    "Privileges": nested({"NoNewPrivileges": flag}),
    "Healthcheck": only_none,
}
GPU_COUNT = nested({"Kind": one_of("GPU"), "Value": number})
RESOURCES: dict[str, Check] = {
    "Limits": nested({"MemoryBytes": number, "NanoCPUs": number, "Pids": processes}),
    "Reservations": nested({"MemoryBytes": number, "GenericResources": gpus}),
}
TASK: dict[str, Check] = {
    "ContainerSpec": nested(CONTAINER),
    "Resources": nested(RESOURCES),
    "RestartPolicy": nested({"Condition": one_of("none")}),
    "Placement": nested({"Constraints": constraints}),
    "LogDriver": nested({"Name": one_of("json-file", "local"), "Options": texts_by_name}),
    "Networks": objects({"Target": text}),
}
SERVICE: dict[str, Check] = {
    "Name": text,
    "Labels": labels,
    "TaskTemplate": nested(TASK),
    "EndpointSpec": nested({"Mode": one_of("dnsrr")}),
}


NODE: dict[str, Check] = {**dict.fromkeys(("Name", "Role", "Availability"), text), "Labels": texts_by_name}


def rebuild_service(rules: Rules, body: dict[str, Any]) -> dict[str, Any]:
    """Return the admitted body of a request to create a service, with the hub's label and without privileges.

    The caller must still look up the network and volumes in the engine and check that they belong to the hub.
    """
    built = rebuild("", body, SERVICE)
    check_own_name(rules, "service", built.get("Name", ""))
    task = built.get("TaskTemplate", {})
    container = task.get("ContainerSpec", {})
    rules.check_image(container.get("Image", ""))
    _bound(task)
    container["Mounts"] = [_owned(rules, mount) for mount in container.get("Mounts", [])]
    container["CapabilityDrop"] = ["ALL"]
    container["Privileges"] = {"NoNewPrivileges": True}
    container["Healthcheck"] = {"Test": ["NONE"]}
    if not task.get("Resources", {}).get("Reservations", {}).get("GenericResources"):
        # If NVIDIA's runtime is a node's default, an image that requests all GPUs would otherwise get them.
        container["Env"] = [*container.get("Env", []), f"{GPU_VARIABLE}={NO_GPU}"]
    built["Labels"] = {**built.get("Labels", {}), **rules.label}
    return {**built, "EndpointSpec": {"Mode": "dnsrr"}}


def rebuild_node(spec: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return the specification of a node, in which only the labels for data sets are those of the request."""
    asked = rebuild("", body, NODE).get("Labels", {})
    data = {key: value for key, value in asked.items() if key.startswith(DATA_LABELS)}
    if set(data.values()) - {HAS_DATA}:
        raise RefusedError(f"Labels that begin with {DATA_LABELS!r} may only be {HAS_DATA!r}.")
    kept = {key: value for key, value in (spec.get("Labels") or {}).items() if not key.startswith(DATA_LABELS)}
    return {**spec, "Labels": {**kept, **data}}


def _bound(task: dict[str, Any]) -> None:
    """Refuse a task that may restart, that is not in exactly one network, or whose processes are not limited."""
    if task.get("RestartPolicy") != {"Condition": "none"}:
        raise RefusedError("TaskTemplate.RestartPolicy must have the Condition 'none'.")
    if len(task.get("Networks", [])) != 1 or not task["Networks"][0].get("Target"):
        raise RefusedError("TaskTemplate.Networks must be one network of this hub.")
    if not task.get("Resources", {}).get("Limits", {}).get("Pids"):
        raise RefusedError("TaskTemplate.Resources.Limits.Pids is missing: a server's processes must be limited.")


def _owned(rules: Rules, mount: dict[str, Any]) -> dict[str, Any]:
    if mount.get("Type") == "tmpfs":
        return mount
    if mount.get("Source") == whole(rules.name):
        # Refuse this volume even if the mount is read-only, because the volume holds the homes of all users.
        raise RefusedError(f"The volume {mount['Source']!r} holds the homes of all users, so no server may mount it.")
    return owned(rules, mount)
