"""Tests for the choice of a worker's machine in a swarm."""

from __future__ import annotations

from typing import Any

import pytest

from spawner_config.labels import CLUSTER_LABEL
from spawner_config.swarm.placement import NODE_LABEL, choose_node
from spawner_config.swarm.services import GPU_LABEL, NodeNeeds

CLUSTER = "ada/main"


def node(key: str, *, gpus: Any = (), state: str = "ready", availability: str = "active", **labels: str) -> Any:
    return {
        "ID": key,
        "Spec": {"Labels": labels, "Availability": availability},
        "Status": {"State": state},
        "Description": {"Resources": {"GenericResources": list(gpus)} if gpus else {}},
    }


def on(key: str, cluster: str | None = CLUSTER) -> dict[str, Any]:
    return {"Spec": {"Labels": {NODE_LABEL: key, **({CLUSTER_LABEL: cluster} if cluster else {})}}}


def named(*ids: str, kind: str = "GPU") -> list[dict[str, Any]]:
    return [{"NamedResourceSpec": {"Kind": kind, "Value": each}} for each in ids]


THREE = [node("a"), node("b"), node("c")]


def test_workers_of_a_cluster_are_spread_over_all_machines() -> None:
    services: list[dict[str, Any]] = []
    for _ in range(6):
        chosen = choose_node(THREE, services, CLUSTER, NodeNeeds())
        assert chosen
        services.append(on(chosen))
    assert [each["Spec"]["Labels"][NODE_LABEL] for each in services] == ["a", "b", "c"] * 2


def test_of_unused_machines_the_one_with_the_fewest_servers_is_chosen() -> None:
    services = [on("a", "grace/main"), on("c", None), on("b", "grace/main"), on("b", "grace/main"), {"Spec": {}}]
    assert choose_node(THREE, [*services, on("a")], CLUSTER, NodeNeeds()) == "c"


@pytest.mark.parametrize(
    "unfit",
    [node("a", state="down"), node("a", availability="drain"), node("a", availability="pause"), node("a", disk="slow")],
)
def test_a_machine_without_room_is_skipped(unfit: Any) -> None:
    needs = NodeNeeds(node_labels={"disk": "fast"})
    assert choose_node([unfit, node("b", disk="fast")], [on("b")], CLUSTER, needs) == "b"
    assert choose_node([unfit], [], CLUSTER, needs) is None


@pytest.mark.parametrize("gpus", [named("GPU-1", "GPU-2"), [{"DiscreteResourceSpec": {"Kind": "GPU", "Value": 2}}]])
def test_gpus_are_counted_in_every_format(gpus: Any) -> None:
    nodes = [node("a"), node("b", gpus=[*gpus, *named("x", "y", kind="SSD")])]
    assert choose_node(nodes, [], CLUSTER, NodeNeeds(gpus=2)) == "b"
    assert choose_node(nodes, [], CLUSTER, NodeNeeds(gpus=3)) is None


def test_a_class_of_gpus_is_a_label() -> None:
    needs = NodeNeeds(gpus=1, gpu_class="big", node_labels={"disk": "fast"})
    assert needs.constraints == ["node.labels.disk==fast", f"node.labels.{GPU_LABEL}==big"]
    gpus = named("GPU-1")
    nodes = [node("a", gpus=gpus, disk="fast"), node("b", gpus=gpus, disk="fast", **{GPU_LABEL: "big"})]
    assert choose_node(nodes, [on("b")], CLUSTER, needs) == "b"


def test_a_machine_that_has_the_data_sets_is_preferred() -> None:
    needs = NodeNeeds(data=("farandole.data.digits-v2", "farandole.data.web-v1"))
    one = node("b", **{"farandole.data.digits-v2": "yes"})
    both = node("c", **{"farandole.data.digits-v2": "yes", "farandole.data.web-v1": "yes"})
    assert choose_node([node("a"), one, both], [on("c"), on("c"), on("b")], CLUSTER, needs) == "c"
    assert choose_node([node("a"), one], [on("b"), on("b")], CLUSTER, needs) == "b"
    assert choose_node([node("a"), node("b")], [on("a")], CLUSTER, needs) == "b"
    assert choose_node([node("a"), node("c", state="down")], [], CLUSTER, needs) == "a"
    without = node("b", **{"farandole.data.digits-v2": "no"})
    assert choose_node([node("a"), without], [on("a")], CLUSTER, needs) == "b"
    assert choose_node([node("a"), without], [on("b")], CLUSTER, needs) == "a"
