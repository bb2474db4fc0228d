"""Spreads a cluster's workers over as many machines as possible, which a swarm does not do by itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from spawner_config.labels import CLUSTER_LABEL, HAS_DATA
from spawner_config.swarm.services import GPU_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spawner_config.swarm.services import NodeNeeds

NODE_LABEL = "farandole.node"
"""The label of a service that contains the id of the node that the hub chose for it."""


def choose_node(
    nodes: Iterable[dict[str, Any]], services: Iterable[dict[str, Any]], cluster: str, needs: NodeNeeds
) -> str | None:
    """Return the id of the best node for a worker of ``cluster``, or None if no node meets the requirements.

    The best node lacks the fewest of the data sets that the worker's profile names. Among equal nodes, it has the
    fewest workers of this cluster; then it is the node that the hub has chosen for the fewest servers. ``nodes`` and
    ``services`` (those of the hub) are given as the engine lists them.
    """
    labels = [each["Spec"].get("Labels") or {} for each in services]
    ours = Counter(each.get(NODE_LABEL) for each in labels if each.get(CLUSTER_LABEL) == cluster)
    everybodys = Counter(each.get(NODE_LABEL) for each in labels)
    missing = {node["ID"]: _missing(node, needs) for node in nodes if _fits(node, needs)}
    return min(sorted(missing), key=lambda node: (missing[node], ours[node], everybodys[node]), default=None)


def _fits(node: dict[str, Any], needs: NodeNeeds) -> bool:
    ready = node["Status"]["State"] == "ready" and node["Spec"]["Availability"] == "active"
    labels: Mapping[str, str] = node["Spec"].get("Labels") or {}
    labelled = all(labels.get(key) == value for key, value in needs.labels.items())
    return ready and labelled and _gpus(node) >= needs.gpus


def _missing(node: dict[str, Any], needs: NodeNeeds) -> int:
    """Return how many of the needed data sets a node does not have."""
    labels: Mapping[str, str] = node["Spec"].get("Labels") or {}
    return sum(labels.get(label) != HAS_DATA for label in needs.data)


def _gpus(node: dict[str, Any]) -> int:
    """Return the number of a node's GPUs, whether in use or not; a node lists them either by name or as a number."""
    resources = node["Description"]["Resources"].get("GenericResources") or []
    named = [each for each in resources if each.get("NamedResourceSpec", {}).get("Kind") == GPU_RESOURCE]
    counted = (each.get("DiscreteResourceSpec", {}) for each in resources)
    return len(named) + sum(int(each["Value"]) for each in counted if each.get("Kind") == GPU_RESOURCE)
