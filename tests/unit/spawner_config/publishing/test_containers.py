"""Tests for publications in volumes of an engine. Each request passes through the rules of the engine filter."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import requests
from docker.errors import APIError, NotFound
from farandole.datasets.versions.names import parse_version

from hub.engine_filter.containers import rebuild_container
from hub.engine_filter.rules import Rules
from spawner_config.publishing import containers
from spawner_config.publishing.containers import VolumeStore
from spawner_config.publishing.publications import Ended, Order, PublicationError

DIGITS = parse_version("digits@3")
OURS = {"farandole.hub": "farandole"}
RULES = Rules(shared_volumes=("digits-v2",))
RESULT = b'{"files": 1}\n'


def refused(status: int, text: str) -> APIError:
    response = requests.Response()
    response.status_code = status
    return (NotFound if status == 404 else APIError)(text, response=response, explanation=text)


class Engine(docker.APIClient):
    """An engine with volumes, whose containers end after a few looks at them."""

    def __init__(self, **volumes: dict[str, str]) -> None:
        super().__init__(base_url="tcp://127.0.0.1:1", version="1.41")
        self.volumes = {name.replace("_", "-"): labels for name, labels in volumes.items()}
        self.made: list[dict[str, Any]] = []
        self.there: set[str] = set()
        self.looks, self.status, self.fails, self.full = 2, 0, False, False

    def inspect_volume(self, name: str) -> dict[str, Any]:
        if name not in self.volumes:
            raise refused(404, "no such volume")
        if self.volumes[name] != OURS:
            raise refused(403, "does not belong to this hub")
        return {"Labels": self.volumes[name]}

    def create_container_from_config(self, config: Any, name: str, *_: Any, **__: Any) -> dict[str, str]:
        assert name not in self.there
        self.there.add(name)
        self.made.append(rebuild_container(RULES, json.loads(json.dumps(config))))
        return {"Id": name}

    def start(self, container: str) -> None:
        if self.fails:
            raise refused(500, "no space left on device")
        assert container in self.there

    def inspect_container(self, _container: str) -> dict[str, Any]:
        self.looks -= 1
        return {"State": {"Running": self.looks > 0, "ExitCode": self.status, "OOMKilled": self.full}}

    def logs(self, _container: str) -> bytes:
        return RESULT

    def remove_container(self, container: str, *, v: bool, force: bool) -> None:
        assert (v, force) == (False, True)
        if container not in self.there:
            raise refused(404, "no such container")
        self.there.remove(container)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "POLL_SECONDS", 0.001)


def copy(engine: Engine) -> Ended | None:
    spawner = SimpleNamespace(homes=["farandole-home-ada"])
    order = Order(user="ada", spawner=spawner, name="digits", folder="data/digits", bytes=2)
    return asyncio.run(VolumeStore(lambda: engine, hub="farandole", image="farandole-notebook:1").copy(DIGITS, order))


def test_the_container_reads_the_home_and_writes_the_new_volume_only() -> None:
    engine = Engine()
    assert copy(engine) == Ended(status=0, outcome=RESULT.decode())
    [made] = engine.made
    host = made["HostConfig"]
    labels = {"Labels": OURS}
    home, version = host["Mounts"]
    assert (home["Source"], home["Target"], home["ReadOnly"]) == ("farandole-home-ada", "/home/user", True)
    assert version == {
        "Type": "volume",
        "Source": "digits-v3",
        "Target": "/groups",
        "ReadOnly": False,
        "VolumeOptions": labels,
    }
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"]) == ("none", True, ["ALL"])
    command = ["python", "-I", "-m", "farandole.datasets.versions", "publish", "/home/user/data/digits", "/groups"]
    assert made["Entrypoint"] == command
    assert made["Labels"] == OURS
    assert not engine.there


def test_the_volume_of_an_earlier_attempt_is_used_again() -> None:
    engine = Engine(digits_v3=OURS)
    assert copy(engine)
    assert engine.made


def test_a_volume_of_others_is_left_alone() -> None:
    engine = Engine(digits_v3={})
    assert copy(engine) is None
    assert not engine.made


def test_a_container_that_an_earlier_hub_has_left_is_removed() -> None:
    engine = Engine()
    engine.there.add("farandole-publish-digits")
    assert copy(engine)
    assert not engine.there


def test_the_reason_of_the_engine_is_reported_and_nothing_is_left() -> None:
    engine = Engine()
    engine.fails = True
    with pytest.raises(PublicationError, match="no space left on device"):
        copy(engine)
    assert not engine.there


def test_the_exit_status_is_reported() -> None:
    engine = Engine()
    engine.status = 137
    assert copy(engine) == Ended(status=137, outcome=RESULT.decode())


def test_too_little_memory_is_named() -> None:
    engine = Engine()
    engine.status, engine.full = 137, True
    assert copy(engine) == Ended(status=137, outcome="its 1g of memory were not enough")
