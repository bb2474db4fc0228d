from __future__ import annotations

import asyncio
from typing import Any

import pytest
from docker.errors import APIError, NotFound

from hub.engine_filter.rules import Rules
from spawner_config.containers.shared_volumes import SharedVolumeError, SharedVolumes
from spawner_config.refusals import ForeignObjectError
from spawner_config.settings import SettingsError
from spawner_config.shares import DataSet, Shares, parse_data, parse_folders

SHARES = Shares(data=parse_data("mnist:/data/mnist", "farandole"), folders=parse_folders("vision: Ada grace, nlp"))


class FakeEngine:
    """A fake engine that stores volumes and their labels, and records which containers were created and removed."""

    def __init__(self, *volumes: str) -> None:
        self.volumes = set(volumes)
        self.containers: list[Any] = []
        self.removed: list[str] = []
        self.labels: dict[str, dict[str, str] | None] = {}
        self.asked: list[dict[str, str]] = []
        self.refusal = ""

    def create_volume(
        self, name: str, *, labels: dict[str, str], driver_opts: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Create a volume, or return the existing volume with this name, as an engine does."""
        if name not in self.volumes:
            if driver_opts:
                self.asked.append(driver_opts)
                if self.refusal:
                    raise APIError("refused", explanation=self.refusal)
            self.volumes.add(name)
            self.labels[name] = labels
        return {"Name": name, "Labels": self.labels.get(name)}

    def inspect_volume(self, name: str) -> dict[str, str]:
        if name not in self.volumes:
            raise NotFound("no such volume")
        return {"Name": name}

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, image: str, *, host_config: dict[str, Any], labels: dict[str, str]) -> dict[str, str]:
        self.volumes |= set(host_config["binds"])
        self.containers.append((image, host_config, labels))
        return {"Id": str(len(self.containers))}

    def remove_container(self, name: str) -> None:
        self.removed.append(name)


HOME = "farandole-home-ada-example-org-1234abcd"


def claim(engine: FakeEngine, user: str) -> None:
    asyncio.run(SharedVolumes(engine, SHARES, name="farandole").claim_homes([HOME], user))  # type: ignore[arg-type]


def claim_with_size(engine: FakeEngine, *homes: str) -> None:
    shared = SharedVolumes(engine, SHARES, name="farandole")  # type: ignore[arg-type]
    for home in homes:
        asyncio.run(shared.claim_homes([home], "ada", size=2**30))


def test_a_new_home_has_a_quota_and_an_existing_one_keeps_what_it_has() -> None:
    engine = FakeEngine("old")
    claim_with_size(engine, "old", "new")
    assert engine.asked == [{"size": "1073741824"}]
    claim(FakeEngine(), "ada")


def test_an_engine_without_quotas_is_asked_once_and_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.refusal = "quota size requested but no quota support"
    claim_with_size(engine, "first", "second")
    assert engine.volumes == {"first", "second"}
    assert len(engine.asked) == 1
    [line] = [line for line in caplog.messages if "quota" in line]
    assert "has no project quotas (quota size requested but no quota support). Homes are measured" in line


def test_another_refusal_of_the_engine_is_an_error() -> None:
    engine = FakeEngine()
    engine.refusal = "no space left on device"
    with pytest.raises(APIError):
        claim_with_size(engine, "first")


def ensure(engine: FakeEngine, user: str, groups: set[str]) -> None:
    shared = SharedVolumes(engine, SHARES, name="farandole")  # type: ignore[arg-type]
    asyncio.run(shared.ensure(user, groups, None, image="farandole-notebook:1", network="farandole-user-ada"))


def test_data_sets_are_volumes_with_a_folder() -> None:
    found = parse_data(" mnist:/data/mnist, web:/mnt/text/web,", "farandole")
    assert found == (DataSet(volume="mnist", path="/data/mnist"), DataSet(volume="web", path="/mnt/text/web"))
    assert parse_data("", "farandole") == ()


@pytest.mark.parametrize(
    "text",
    [
        "mnist",
        "mnist:data",
        "mnist:/etc",
        "mnist:/data",
        "mnist:/data/../etc",
        "mnist:/data/a:rw",
        "/etc:/data/etc",
        "farandole-state:/data/state",
        "mnist:/data/a,web:/data/a",
        "mnist:/data/a,mnist:/data/b",
        "mnist@:/data/mnist",
        "mnist@latest:/data/mnist",
        "mnist@0:/data/mnist",
        "MNIST@2:/data/mnist",
        "mnist@2:/data/a,mnist@2:/data/b",
        "mnist@2:/data/a,mnist-v2:/data/b",
        "farandole-state@1:/data/state",
    ],
)
def test_an_invalid_data_set_is_refused_by_hub_and_filter(text: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_SHARED_VOLUMES"):
        parse_data(text, "farandole")
    with pytest.raises(SettingsError, match="FARANDOLE_SHARED_VOLUMES"):
        Rules.from_environment({"FARANDOLE_SHARED_VOLUMES": text})


def test_members_are_listed_or_come_from_the_hubs_group() -> None:
    def groups_of(user: str, groups: set[str]) -> list[str]:
        return [folder.group for folder in SHARES.folders_of(user, groups)]

    assert groups_of("ada", set()) == ["vision"]
    assert groups_of("emmy", {"nlp", "vision"}) == ["nlp"]
    assert groups_of("emmy", set()) == []


@pytest.mark.parametrize("text", ["a b", "Vision", "../x: ada", "nlp,nlp: ada", ": ada"])
def test_an_invalid_group_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_GROUP_FOLDERS"):
        parse_folders(text)


def test_the_filter_admits_the_volumes_of_the_same_setting() -> None:
    rules = Rules.from_environment({"FARANDOLE_SHARED_VOLUMES": "mnist:/data/mnist"})
    assert rules.shares_volume("mnist")
    assert not rules.shares_volume("mnist2")


def test_data_sets_are_read_only_and_folders_of_groups_writable() -> None:
    shared = SharedVolumes(FakeEngine(), SHARES, name="farandole")  # type: ignore[arg-type]
    data = {"mnist": {"bind": "/data/mnist", "mode": "ro"}}
    vision = {"farandole-group-vision": {"bind": "/groups/vision", "mode": "rw"}}
    assert shared.binds("ada", set(), None) == {**data, **vision}
    assert shared.binds("emmy", set(), None) == data
    assert shared.binds("ada", set(), []) == vision


def test_a_home_carries_the_full_name_of_its_user() -> None:
    engine = FakeEngine()
    claim(engine, "ada@example.org")
    claim(engine, "ada@example.org")
    assert engine.labels == {HOME: {"farandole.hub": "farandole", "farandole.owner": "ada@example.org"}}


def test_the_home_of_another_user_is_refused_with_the_remedy() -> None:
    """The home's owner may have been deleted, because homes are kept when their users are deleted."""
    engine = FakeEngine()
    claim(engine, "ada@example.org")
    with pytest.raises(
        ForeignObjectError,
        match=f"volume {HOME} belongs to the user 'ada@example.org', and not to 'another'.*remove the volume if",
    ):
        claim(engine, "another")


def test_a_home_of_an_earlier_version_has_no_name_and_is_accepted() -> None:
    claim(FakeEngine(HOME), "ada@example.org")


def test_a_profile_can_have_some_of_the_data_sets() -> None:
    shares = Shares(data=parse_data("mnist:/data/mnist,web:/data/web", "farandole"))
    shared = SharedVolumes(FakeEngine("web"), shares, name="farandole")  # type: ignore[arg-type]
    assert shared.binds("ada", set(), ["web"]) == {"web": {"bind": "/data/web", "mode": "ro"}}
    # The data set mnist is missing, but this profile does not use it.
    asyncio.run(shared.ensure("ada", set(), ["web"], image="farandole-notebook:1", network="farandole-user-ada"))
    with pytest.raises(SharedVolumeError, match="mnist"):
        asyncio.run(shared.ensure("ada", set(), None, image="farandole-notebook:1", network="farandole-user-ada"))


def test_a_profile_with_an_unknown_data_set_is_refused() -> None:
    SHARES.check("cpu", None)
    SHARES.check("cpu", ["mnist"])
    with pytest.raises(SettingsError, match=r"profile 'cpu' has 'imagenet'.* names: mnist"):
        SHARES.check("cpu", ["imagenet"])


def test_a_groups_volume_is_created_once_by_a_temporary_container() -> None:
    engine = FakeEngine("mnist")
    ensure(engine, "ada", set())
    ensure(engine, "grace", set())
    [(image, host, labels)] = engine.containers
    assert image == "farandole-notebook:1"
    assert host["binds"] == {"farandole-group-vision": {"bind": "/groups", "mode": "rw"}}
    assert host["network_mode"] == "farandole-user-ada"
    assert labels == {"farandole.hub": "farandole"}
    assert engine.removed == ["1"]


def test_a_version_of_a_data_set_is_a_volume_that_all_servers_only_read() -> None:
    shares = Shares(data=parse_data("mnist@2:/data/mnist, web:/data/web", "farandole"))
    shared = SharedVolumes(FakeEngine("mnist-v2"), shares, name="farandole")  # type: ignore[arg-type]
    shares.check("cpu", ["mnist@2"])
    assert shared.binds("ada", set(), ["mnist@2"]) == {"mnist-v2": {"bind": "/data/mnist", "mode": "ro"}}
    assert Rules.from_environment({"FARANDOLE_SHARED_VOLUMES": "mnist@2:/data/mnist"}).shares_volume("mnist-v2")


def test_servers_know_the_versions_that_they_have() -> None:
    shares = Shares(data=parse_data("mnist@2:/data/mnist, web:/data/web", "farandole"))
    assert shares.variables_of(None) == {"FARANDOLE_MOUNTED_DATA": '{"mnist@2": "/data/mnist"}'}
    assert shares.variables_of(["web"]) == {}


def test_a_missing_version_is_named() -> None:
    shares = Shares(data=parse_data("mnist@2:/data/mnist", "farandole"))
    shared = SharedVolumes(FakeEngine(), shares, name="farandole")  # type: ignore[arg-type]
    with pytest.raises(SharedVolumeError, match="no volume 'mnist-v2' for mnist@2"):
        asyncio.run(shared.ensure("ada", set(), None, image="farandole-notebook:1", network="farandole-user-ada"))


def test_a_missing_data_set_is_named() -> None:
    with pytest.raises(SharedVolumeError, match="docker volume create mnist"):
        ensure(FakeEngine(), "ada", set())
