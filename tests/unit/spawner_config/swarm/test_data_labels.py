"""Tests for the labels of a swarm's nodes for the data sets that they have."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from docker.errors import APIError, NotFound
from tornado.log import app_log

from hub.engine_filter.refused import RefusedError
from hub.engine_filter.services import rebuild_node
from spawner_config.shares import Shares, parse_data
from spawner_config.swarm.data_labels import label_node, labels_of

SHARES = Shares(data=parse_data("digits@1:/data/a, digits@2:/data/b, nfs@1:/data/c, web:/data/web", "farandole"))


class Engine:
    """An engine of a swarm with two nodes. Changes pass through the rules of the engine filter."""

    def __init__(self, **labels: str) -> None:
        self.specs = {key: {"Role": "worker", "Availability": "active", "Labels": {"disk": "fast"}} for key in "ab"}
        self.specs["a"]["Labels"] = labels
        self.changes = 0
        self.status = 200

    def inspect_volume(self, name: str) -> dict[str, Any]:
        if name not in {"digits-v2", "nfs-v1"}:
            raise NotFound("", response=requests.Response())
        return {"Name": name, "Options": {"type": "nfs"} if name == "nfs-v1" else None}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"ID": key, "Version": {"Index": 7}, "Spec": spec} for key, spec in self.specs.items()]

    def update_node(self, node: str, version: int, spec: dict[str, Any]) -> None:
        if self.status != 200:
            raise APIError("update out of sequence", response=requests.Response())
        assert version == 7
        self.changes += 1
        self.specs[node] = rebuild_node(self.specs[node], json.loads(json.dumps(spec)))


def labelled(engine: Engine, shares: Shares = SHARES) -> dict[str, str]:
    label_node(engine, "a", shares)  # type: ignore[arg-type]
    found: dict[str, str] = engine.specs["a"]["Labels"]  # type: ignore[assignment]
    return found


def test_the_hub_labels_its_own_node_for_what_is_on_its_disk() -> None:
    engine = Engine(**{"disk": "slow", "farandole.data.digits-v1": "yes", "farandole.data.other-v1": "yes"})
    wanted = {"disk": "slow", "farandole.data.other-v1": "yes", "farandole.data.digits-v2": "yes"}
    assert labelled(engine) == wanted
    assert engine.specs["b"]["Labels"] == {"disk": "fast"}
    assert labelled(engine) == wanted
    assert engine.changes == 1


def test_a_label_of_the_administrator_for_a_network_share_remains() -> None:
    engine = Engine(**{"farandole.data.nfs-v1": "yes", "farandole.data.digits-v2": "yes"})
    assert labelled(engine) == {"farandole.data.nfs-v1": "yes", "farandole.data.digits-v2": "yes"}
    assert engine.changes == 0


def test_the_log_says_how_to_label_the_other_nodes(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    with caplog.at_level("INFO", logger=app_log.name):
        labelled(engine)
        assert "run: docker node update --label-add farandole.data.digits-v2=yes NODE" in caplog.text
        caplog.clear()
        engine.specs["b"]["Labels"] = {"farandole.data.digits-v2": "yes"}
        labelled(engine)
        del engine.specs["b"]
        labelled(engine)
    assert caplog.text == ""


def test_without_versions_nothing_is_asked() -> None:
    engine = Engine()
    del engine.specs["a"], engine.specs["b"]
    label_node(engine, "a", Shares())  # type: ignore[arg-type]
    assert engine.changes == 0


def test_the_hub_starts_if_the_node_cannot_be_labelled(caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.status = 500
    labelled(engine)
    assert "not labelled with its data sets: update out of sequence" in caplog.text


def test_a_profile_prefers_the_versions_that_it_names() -> None:
    assert labels_of(["digits@2", "web"]) == ("farandole.data.digits-v2",)
    assert labels_of(None) == labels_of([]) == ()


def test_the_filter_changes_labels_of_data_sets_only() -> None:
    spec = {"Role": "worker", "Availability": "active", "Labels": {"disk": "fast", "farandole.data.a-v1": "yes"}}
    sent = {"Role": "manager", "Availability": "drain", "Labels": {"disk": "slow", "farandole.data.b-v1": "yes"}}
    assert rebuild_node(spec, sent) == {**spec, "Labels": {"disk": "fast", "farandole.data.b-v1": "yes"}}
    for wrong in ({"Labels": {"farandole.data.b-v1": "no"}}, {"Labels": ["a"]}, {"Driver": "x"}):
        with pytest.raises(RefusedError):
            rebuild_node(spec, wrong)
