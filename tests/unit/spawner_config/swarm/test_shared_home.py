"""Tests for homes on a swarm: where they are stored, and how their folders are created."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError

from spawner_config.containers.shared_volumes import SharedVolumeError
from spawner_config.settings import SettingsError
from spawner_config.shares import Shares, parse_folders
from spawner_config.swarm.home_volumes import SwarmVolumes
from spawner_config.swarm.shared_home import SharedHome, whole

IMAGE = "farandole-notebook:1"
HOME = {"farandole-home-ada": {"bind": "/home/user", "mode": "rw"}}
DATA = {"mnist": {"bind": "/data/mnist", "mode": "ro"}}
NFS = SharedHome(server="10.0.0.5", path="/export/homes")


def folder(text: str) -> SharedHome | None:
    return SharedHome.from_environment({"FARANDOLE_SWARM_HOMES": text})


def test_a_shared_folder_is_on_a_server_or_a_path() -> None:
    assert folder("nfs://10.0.0.5/export/homes/") == NFS
    assert folder("nfs://files.example.org/") == SharedHome(server="files.example.org", path="/")
    assert folder("/mnt/homes/") == SharedHome(path="/mnt/homes")
    assert folder("") is None


@pytest.mark.parametrize(
    "text",
    ["homes", "nfs://10.0.0.5", "nfs://a,o=x/y", "/mnt/a b", "/mnt/../etc", "nfs://host/a/../..", "smb://host/x"],
)
def test_an_invalid_folder_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_SWARM_HOMES"):
        folder(text)


def test_each_volume_is_a_folder_in_the_shared_folder() -> None:
    assert NFS.options("farandole-home-ada", "farandole") == {
        "type": "nfs",
        "o": "addr=10.0.0.5,rw,hard,nosuid,nodev",
        "device": ":/export/homes/farandole-home-ada",
    }
    mounted = SharedHome(path="/mnt/homes")
    assert mounted.options(whole("farandole"), "farandole")["device"] == "/mnt/homes"
    assert mounted.options("farandole-home-ada", "farandole") == {
        "type": "none",
        "o": "bind",
        "device": "/mnt/homes/farandole-home-ada",
    }


class FakeEngine:
    """A fake engine whose containers exit with ``status``. It records which containers were created and removed."""

    def __init__(self, status: int = 0, refusal: Exception | None = None, silent: Exception | None = None) -> None:
        self.status = status
        self.silent = silent
        self.refusal = refusal
        self.containers: list[dict[str, Any]] = []
        self.removed: list[str] = []

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, image: str, **options: Any) -> dict[str, str]:
        self.containers.append({"image": image, **options})
        return {"Id": str(len(self.containers))}

    def start(self, _name: str) -> None:
        if self.refusal:
            raise self.refusal

    def wait(self, _name: str, *, timeout: int) -> dict[str, int]:
        assert timeout
        if self.silent:
            raise self.silent
        return {"StatusCode": self.status}

    def logs(self, _name: str) -> bytes:
        return b"mkdir: Permission denied\n"

    def remove_container(self, name: str, *, force: bool) -> None:
        assert force
        self.removed.append(name)
        if self.silent:
            raise self.silent


def volumes(engine: FakeEngine, where: SharedHome | None = NFS) -> SwarmVolumes:
    shares = Shares(folders=parse_folders("nlp: ada"))
    return SwarmVolumes(engine, shares, where, name="farandole")  # type: ignore[arg-type]


def test_a_folder_is_created_once_by_a_container_without_a_network() -> None:
    engine = FakeEngine()
    found = volumes(engine)
    for _ in range(2):
        asyncio.run(found.make({**HOME, **DATA}, image=IMAGE))
    [made] = engine.containers
    assert made["entrypoint"] == ["mkdir", "--parents", "--mode=700", "/homes/farandole-home-ada"]
    assert (made["image"], made["host_config"]["network_mode"]) == (IMAGE, "none")
    [mount] = made["host_config"]["mounts"]
    assert mount["Source"] == "farandole-homes"
    assert mount["VolumeOptions"]["DriverConfig"]["Options"]["device"] == ":/export/homes"
    assert engine.removed == ["1"]


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (FakeEngine(status=1), "mkdir: Permission denied"),
        (
            FakeEngine(refusal=APIError("", response=requests.Response(), explanation="no such device")),
            "no such device",
        ),
        (FakeEngine(silent=requests.ReadTimeout("Read timed out")), "Read timed out"),
        (FakeEngine(silent=requests.ConnectionError("Connection refused")), "Connection refused"),
    ],
)
def test_a_folder_that_cannot_be_created_is_reported_with_the_reason(engine: FakeEngine, why: str) -> None:
    with pytest.raises(
        SharedVolumeError, match=f"farandole-home-ada could not be created .*: {why}. The administrator"
    ):
        asyncio.run(volumes(engine).make(HOME, image=IMAGE))
    assert engine.removed == ["1"]


def test_without_a_shared_folder_each_machine_has_its_own_volumes() -> None:
    engine = FakeEngine()
    found = volumes(engine, None)
    asyncio.run(found.make(HOME, image=IMAGE))
    assert (engine.containers, found.everywhere) == ([], False)
    [mount] = found.mounts(HOME, HOME, "ada")
    assert mount["VolumeOptions"] == {"Labels": {"farandole.hub": "farandole", "farandole.owner": "ada"}}


def test_a_service_has_volumes_and_no_host_folder() -> None:
    home, data = volumes(FakeEngine()).mounts({**HOME, **DATA}, HOME, "ada")
    assert (home["Type"], home["Source"], home["Target"], home["ReadOnly"]) == (
        "volume",
        "farandole-home-ada",
        "/home/user",
        False,
    )
    assert home["VolumeOptions"]["NoCopy"]
    assert home["VolumeOptions"]["DriverConfig"]["Options"]["type"] == "nfs"
    assert (data["Type"], data["ReadOnly"], data.get("VolumeOptions")) == ("volume", True, None)


def test_the_home_is_claimed_as_a_folder_of_the_share() -> None:
    """A label of the volume on the hub's machine records the owner. The engine filter accepts only these options."""
    made: list[dict[str, Any]] = []

    def create_volume(name: str, **options: Any) -> dict[str, Any]:
        made.append({"name": name, **options})
        return {"Labels": options["labels"]}

    engine = SimpleNamespace(create_volume=create_volume)
    asyncio.run(volumes(engine).claim_homes(HOME, "ada"))  # type: ignore[arg-type]
    [volume] = made
    assert volume["labels"] == {"farandole.hub": "farandole", "farandole.owner": "ada"}
    assert (volume["driver"], volume["driver_opts"]["device"]) == ("local", ":/export/homes/farandole-home-ada")


def test_a_groups_folder_is_created_like_homes() -> None:
    engine = FakeEngine()
    found = volumes(engine)
    asyncio.run(found.ensure("ada", set(), None, image=IMAGE, network="farandole-user-ada"))
    assert engine.containers == []
    asyncio.run(found.make(found.binds("ada", set(), None), image=IMAGE))
    assert engine.containers[0]["entrypoint"][-1] == "/homes/farandole-group-nlp"
