"""Labels of a swarm's nodes for the versions of data sets that they have. Profiles that name a version prefer them.

The hub sets those of its own machine. A manager of a swarm does not know the volumes of other machines, so the
administrator sets theirs: ``docker node update --label-add farandole.data.imagenet-v2=yes NODE``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docker.errors import NotFound
from farandole.datasets.versions.names import DataVersion, parse_version
from tornado.log import app_log

from spawner_config.containers.networks import ENGINE_ERRORS, reason
from spawner_config.labels import DATA_LABELS, HAS_DATA

if TYPE_CHECKING:
    from collections.abc import Collection

    import docker

    from spawner_config.shares import Shares


def label_of(version: DataVersion) -> str:
    """Return the key of the label of nodes that have a version."""
    return f"{DATA_LABELS}{version.volume}"


def labels_of(volumes: Collection[str] | None) -> tuple[str, ...]:
    """Return the keys for those of a profile's volumes that are versions. A profile that names none prefers no node."""
    return tuple(label_of(parse_version(name)) for name in volumes or () if "@" in name)


def label_node(client: docker.APIClient, node: str, shares: Shares) -> None:
    """Label the hub's own node for the versions that it has. If this fails, the hub starts without."""
    versions = [parse_version(data.version) for data in shares.data if data.version]
    if not versions:
        return
    try:
        volumes = {label_of(version): _inspected(client, version) for version in versions}
        lacks = {label for label, volume in volumes.items() if volume is None}
        # A network share is on no machine in particular. If it has a label, the administrator has set it.
        has = {label for label, volume in volumes.items() if volume is not None and not volume.get("Options")}
        nodes = client.nodes()
        [found] = [each for each in nodes if each["ID"] == node]
        _tell_if_alone(has, [_labels(each) for each in nodes if each["ID"] != node])
        labels = _labels(found)
        wanted = {key: value for key, value in labels.items() if key not in lacks} | dict.fromkeys(has, HAS_DATA)
        if wanted != labels:
            client.update_node(node, found["Version"]["Index"], {**found["Spec"], "Labels": wanted})
    except ENGINE_ERRORS as exc:
        app_log.warning("The hub's node is not labelled with its data sets: %s", reason(exc))


def _tell_if_alone(has: set[str], others: list[dict[str, str]]) -> None:
    """Log which versions no other node has according to its labels, because only the administrator can set these."""
    for label in sorted(has):
        if others and not any(label in labels for labels in others):
            app_log.info(
                "Only the hub's node has the label %s, so that workers of profiles that name this data set prefer it. "
                "If other nodes have the data set, run: docker node update --label-add %s=%s NODE",
                *(label, label, HAS_DATA),
            )


def _labels(node: dict[str, Any]) -> dict[str, str]:
    return node["Spec"].get("Labels") or {}


def _inspected(client: docker.APIClient, version: DataVersion) -> dict[str, Any] | None:
    """Return the engine's description of the volume of a version, or None if the hub's machine does not have it."""
    try:
        found: dict[str, Any] = client.inspect_volume(version.volume)
    except NotFound:
        return None
    return found
