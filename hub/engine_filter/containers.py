"""Rebuilds the body of `containers/create` from the options that a server may set and those that every server gets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hub.engine_filter.body import flag, nested, number, objects, one_of, rebuild, text, texts, texts_by_name
from hub.engine_filter.mounts import VOLUME_NAME, binds, mounts, owned, paths, size
from hub.engine_filter.refused import RefusedError
from hub.engine_filter.rules import ROLE_LABEL, SERVICE, is_service
from spawner_config.publishing.command import HOME, is_publish_command, is_volume_of_version
from spawner_config.publishing.command import PLACE as VERSION_PLACE
from spawner_config.swarm.shared_home import MKDIR, PLACE, whole

if TYPE_CHECKING:
    from hub.engine_filter.body import Check
    from hub.engine_filter.rules import Rules

# The first digit may not be 0, because the engine (a Go program) also reads '00' as user id 0. Ids of more than 31 bits
# are refused by the engine itself.
ORDINARY_USER = re.compile(r"[1-9][0-9]{0,9}(:[1-9][0-9]{0,9})?")
DEVICE_ID = re.compile(r"[0-9]{1,3}|GPU-[0-9a-fA-F-]{8,64}|MIG-[0-9a-zA-Z/-]{8,64}")
GPU_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NO_GPU = "void"
GPU_RESOURCES = "DOCKER_RESOURCE_"
"""The prefix of the variables in which a swarm passes the ids of a task's GPUs to NVIDIA's runtime."""
NO_NETWORK = "none"
CHANGES_A_COMMAND = ("Cmd", "Env", "User", "WorkingDir", "Healthcheck")


def user(where: str, value: Any) -> str:
    """Check that the value is empty, or a numeric user id other than 0 with an optional group id."""
    if text(where, value) and not ORDINARY_USER.fullmatch(value):
        raise RefusedError(f"{where} may not be {value!r}: it must be a user id other than 0.")
    return str(value)


def environment(where: str, value: Any) -> list[str]:
    """Check that no environment variable gives access to GPUs."""
    for item in texts(where, value):
        name, _, given = item.partition("=")
        if (name == GPU_VARIABLE and given != NO_GPU) or name.startswith(GPU_RESOURCES):
            raise RefusedError(
                f"{where} may not set {name}: only HostConfig.DeviceRequests and GenericResources give access to GPUs."
            )
    return texts(where, value)


def labels(where: str, value: Any) -> dict[str, str]:
    """Check that the labels do not mark the object as one of the hub's own services."""
    if is_service(texts_by_name(where, value)):
        raise RefusedError(f"{where}.{ROLE_LABEL} may not be {SERVICE!r}, which marks the hub's own services.")
    return dict(value)


def _device_ids(rules: Rules) -> Check:
    def check(where: str, value: Any) -> list[str]:
        ids = texts(where, value)
        plain = [one.removeprefix(f"{rules.gpu_kind}=") for one in ids]
        if not ids or not all(DEVICE_ID.fullmatch(one) for one in plain):
            raise RefusedError(f"{where} may not be {ids!r}: each GPU must be named by its index or its UUID.")
        return ids

    return check


def _device_request(rules: Rules) -> Check:
    checks: dict[str, Check] = {
        "Driver": one_of("nvidia", "cdi"),
        "DeviceIDs": _device_ids(rules),
        "Capabilities": one_of([], [["gpu"]]),
    }

    def check(where: str, value: Any) -> list[dict[str, Any]]:
        requests: list[dict[str, Any]] = objects(checks)(where, value)
        if any({"Driver", "DeviceIDs"} - request.keys() for request in requests):
            raise RefusedError(f"{where} must name a driver and the ids of the GPUs.")
        return requests

    return check


MEMORY = ("Memory", "MemorySwap", "MemoryReservation", "ShmSize")
CPU = ("NanoCpus", "CpuQuota", "CpuPeriod", "CpuShares")
LIMITS: dict[str, Check] = dict.fromkeys((*MEMORY, *CPU, "PidsLimit"), number)
ALWAYS_THE_SAME: dict[str, Check] = {
    "MemorySwappiness": one_of(-1),
    "ConsoleSize": one_of([0, 0]),
    "RestartPolicy": nested({"Name": one_of("", "no")}),
    "IpcMode": one_of("", "private"),
    "CgroupnsMode": one_of("", "private"),
    "VolumeDriver": one_of("", "local"),
    "Runtime": one_of("", "runc", "nvidia"),
    "CapDrop": texts,
    "SecurityOpt": lambda where, value: [
        one_of("no-new-privileges", "no-new-privileges:true", "no-new-privileges=true")(where, item)
        for item in texts(where, value)
    ],
}


def _host_config(rules: Rules) -> dict[str, Check]:
    return {
        **LIMITS,
        **ALWAYS_THE_SAME,
        **dict.fromkeys(("CpusetCpus", "CpusetMems", "NetworkMode"), text),
        **dict.fromkeys(("Init", "AutoRemove", "ReadonlyRootfs"), flag),
        "Ulimits": objects({"Name": text, "Soft": number, "Hard": number}),
        "LogConfig": nested(
            {"Type": one_of("", "json-file", "local"), "Config": nested({"max-size": text, "max-file": text})}
        ),
        # The maximum size of the container's writable layer. The engine's storage driver must support this limit.
        "StorageOpt": nested({"size": size}),
        "Binds": binds,
        "Mounts": mounts,
        "DeviceRequests": _device_request(rules),
    }


ENDPOINT: dict[str, Check] = {"Aliases": texts}


def endpoints(where: str, value: Any) -> dict[str, Any]:
    """Check a container's network endpoints, an object whose keys are the names of the networks."""
    if not isinstance(value, dict):
        raise RefusedError(f"{where} must be an object.")
    return {name: rebuild(f"{where}.{name}", item or {}, ENDPOINT) for name, item in value.items()}


SECONDS_OR_TIMES: dict[str, Check] = dict.fromkeys(("Interval", "Timeout", "Retries", "StartPeriod"), number)
SWITCHES: dict[str, Check] = dict.fromkeys(
    ("Tty", "OpenStdin", "StdinOnce", "AttachStdin", "AttachStdout", "AttachStderr"), flag
)


def _container(rules: Rules) -> dict[str, Check]:
    return {
        **SWITCHES,
        **dict.fromkeys(("Image", "Hostname", "Domainname", "WorkingDir", "StopSignal"), text),
        "User": user,
        "Env": environment,
        "Cmd": texts,
        "Entrypoint": texts,
        "Labels": labels,
        "ExposedPorts": lambda where, value: {port: {} for port in _ports(where, value)},
        "Volumes": paths,
        "StopTimeout": number,
        "Healthcheck": nested({"Test": texts, **SECONDS_OR_TIMES}),
        "HostConfig": nested(_host_config(rules)),
        "NetworkingConfig": nested({"EndpointsConfig": endpoints}),
    }


def _ports(where: str, value: Any) -> list[str]:
    if not isinstance(value, dict) or any(value.values()):
        raise RefusedError(f"{where} must be an object whose keys are ports and whose values are empty.")
    return list(value)


def rebuild_container(rules: Rules, body: dict[str, Any]) -> dict[str, Any]:
    """Return the admitted body of a request to create a container, with the hub's label and without privileges.

    The caller must still look up the networks and volumes in the engine and check that they belong to the hub.
    """
    built = rebuild("", body, _container(rules))
    rules.check_image(built.get("Image", ""))
    host = built.setdefault("HostConfig", {})
    host["Mounts"] = host.pop("Binds", []) + host.get("Mounts", [])
    publishes = _only_publishes(rules, built)
    host["Mounts"] = [
        _of_version(rules, mount) if publishes and mount["Target"] == VERSION_PLACE else owned(rules, mount)
        for mount in host["Mounts"]
    ]
    _only_mounted(built.pop("Volumes", []), host["Mounts"])
    if not publishes:
        _only_makes_a_folder(rules, built)
    host["CapDrop"] = ["ALL"]
    host["SecurityOpt"] = ["no-new-privileges"]
    if not host.get("DeviceRequests"):
        # If NVIDIA's runtime is the engine's default, an image that requests all GPUs would otherwise get them.
        built["Env"] = [*built.get("Env", []), f"{GPU_VARIABLE}={NO_GPU}"]
    built["Labels"] = {**built.get("Labels", {}), **rules.label}
    return built


def _only_makes_a_folder(rules: Rules, built: dict[str, Any]) -> None:
    """Refuse containers that mount the volume with all users' homes or have no network, with one exception.

    The exception is the command that creates a folder in this volume. It gets no network and no other volume. A
    container that could replace a user's folder with a symbolic link would let that user mount any folder of the
    machine. `_only_publishes` checks the containers that publish a data set.
    """
    host = built["HostConfig"]
    source, alone = whole(rules.name), host.get("NetworkMode") == NO_NETWORK
    if not alone and source not in [mount["Source"] for mount in host["Mounts"]]:
        return
    bare = not any(built.get(key) for key in CHANGES_A_COMMAND)
    mounted = [(mount["Source"], mount["Target"]) for mount in host["Mounts"]]
    if not (alone and bare and mounted == [(source, PLACE)] and _makes_a_folder(rules, built.get("Entrypoint", []))):
        raise RefusedError(
            f"A container may mount the volume {source!r} or run without a network only to create a user's folder in "
            "this volume, or without this volume to publish a data set, with the hub's own commands."
        )


def _only_publishes(rules: Rules, built: dict[str, Any]) -> bool:
    """Return whether a container only copies a folder of a home to the volume of a version of a data set.

    It has no network, runs only the hub's own command, and mounts the home read-only. The volume is not shared yet, so
    no server mounts it. The command never changes a version that is complete.
    """
    host = built["HostConfig"]
    alone = host.get("NetworkMode") == NO_NETWORK and not any(built.get(key) for key in CHANGES_A_COMMAND)
    if not alone or not is_publish_command(built.get("Entrypoint", [])) or len(host["Mounts"]) != 2:
        return False
    home, version = host["Mounts"]
    is_home = home.get("ReadOnly") and home.get("Target") == HOME and home.get("Source") != whole(rules.name)
    volume = version.get("Source", "")
    is_new = is_volume_of_version(volume, rules.name) and not rules.shares_volume(volume)
    return bool(is_home and is_new and version.get("Target") == VERSION_PLACE)


def _of_version(rules: Rules, mount: dict[str, Any]) -> dict[str, Any]:
    """Return the mount with the hub's label. Other options of the volume are dropped."""
    kept = {key: mount[key] for key in ("Type", "Source", "Target") if key in mount}
    return {**kept, "Type": "volume", "ReadOnly": False, "VolumeOptions": {"Labels": rules.label}}


def _makes_a_folder(rules: Rules, entrypoint: list[str]) -> bool:
    *command, place = entrypoint or [""]
    folder = place.removeprefix(f"{PLACE}/")
    ours = folder.startswith(rules.prefix) and VOLUME_NAME.fullmatch(folder) is not None
    return command == list(MKDIR) and place == f"{PLACE}/{folder}" and ours


def _only_mounted(volumes: list[str], mounted: list[dict[str, Any]]) -> None:
    nameless = set(volumes) - {mount["Target"] for mount in mounted}
    if nameless:
        raise RefusedError(f"Volumes may not contain {sorted(nameless)}: a volume without a name would have no owner.")
