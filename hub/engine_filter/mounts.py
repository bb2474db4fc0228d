"""Checks a container's mounts; only named volumes are admitted, so that containers cannot access paths of the host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hub.engine_filter.body import flag, nested, objects, one_of, text, texts, texts_by_name
from hub.engine_filter.refused import RefusedError

if TYPE_CHECKING:
    from hub.engine_filter.body import Check
    from hub.engine_filter.rules import Rules

VOLUME_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
SIZE = re.compile(r"[1-9][0-9]{0,15}[kmgt]?b?", re.IGNORECASE)
INSIDE = re.compile(r"/[^:\0]*")


def volume_name(where: str, value: Any) -> str:
    """Check that the value is the name of a volume and not a path of the host."""
    if not VOLUME_NAME.fullmatch(text(where, value)):
        raise RefusedError(f"{where} may not be {value!r}: only named volumes are admitted, not paths of the host.")
    return str(value)


def size(where: str, value: Any) -> str:
    """Check that the value is a disk size, such as 20G."""
    if not SIZE.fullmatch(text(where, value)):
        raise RefusedError(f"{where} may not be {value!r}: it must be a size such as '20G'.")
    return str(value)


def inside(where: str, value: Any) -> str:
    """Check that the value is an absolute path in the container."""
    if not INSIDE.fullmatch(text(where, value)):
        raise RefusedError(f"{where} may not be {value!r}: it must be an absolute path in the container.")
    return str(value)


def paths(where: str, value: Any) -> list[str]:
    """Check an object whose keys are paths in the container and whose values are empty; return the paths."""
    if not isinstance(value, dict) or any(value.values()):
        raise RefusedError(f"{where} must be an object whose keys are paths and whose values are empty.")
    return [inside(where, path) for path in value]


def binds(where: str, value: Any) -> list[dict[str, Any]]:
    """Convert binds, such as 'volume:/path' or 'volume:/path:ro', to mounts."""
    return [_bind(where, item) for item in texts(where, value)]


def _bind(where: str, item: str) -> dict[str, Any]:
    source, _, rest = item.partition(":")
    target, _, mode = rest.partition(":")
    mode = one_of("", "rw", "ro")(where, mode)
    return {
        "Type": "volume",
        "Source": volume_name(where, source),
        "Target": inside(where, target),
        "ReadOnly": mode == "ro",
    }


MOUNT: dict[str, Check] = {
    "Type": one_of("volume"),
    "Source": volume_name,
    "Target": inside,
    "ReadOnly": flag,
    "Consistency": one_of("default"),
    "VolumeOptions": nested(
        {
            "NoCopy": flag,
            "Labels": texts_by_name,
            "DriverConfig": nested({"Name": one_of("local"), "Options": texts_by_name}),
        }
    ),
}
mounts = objects(MOUNT)


def owned(rules: Rules, mount: dict[str, Any]) -> dict[str, Any]:
    """Return the mount with the hub's label, read-only if its volume is shared; refuse volumes of other hubs."""
    if {"Type", "Source", "Target"} - mount.keys():
        raise RefusedError("Mounts must each have Type, Source and Target.")
    source = mount["Source"]
    lent = rules.shares_volume(source)
    if not lent and not source.startswith(rules.prefix):
        raise RefusedError(
            f"The volume {source!r} does not belong to this hub: its name must begin with {rules.prefix!r}."
        )
    options = mount.get("VolumeOptions", {})
    if driver := options.get("DriverConfig"):
        check_driver_options(rules, "VolumeOptions.DriverConfig", source, driver.get("Options", {}))
    labels = {**options.get("Labels", {}), **rules.label}
    read_only = lent or mount.get("ReadOnly", False)
    return {**mount, "ReadOnly": read_only, "VolumeOptions": {**options, "Labels": labels}}


def check_driver_options(rules: Rules, where: str, volume: str, options: dict[str, str]) -> None:
    """Refuse driver options, except a quota, and those that store the volume in a folder of FARANDOLE_SWARM_HOMES."""
    if options.keys() == {"size"}:
        size(f"{where}.size", options["size"])
        return
    ours = rules.homes.options(volume, rules.name) if rules.homes and volume.startswith(rules.prefix) else {}
    if options != ours:
        raise RefusedError(
            f"{where} of {volume!r} is not admitted: only FARANDOLE_SWARM_HOMES sets where a volume is stored."
        )
