"""Tests for settings that a hub on a swarm rejects before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from spawner_config.containers.settings import DockerSettings
from spawner_config.profiles.profiles import Profile, ProfileError
from spawner_config.settings import SettingsError
from spawner_config.swarm.services import NodeNeeds
from spawner_config.swarm.settings import (
    check_engine,
    check_firewall,
    check_groups,
    node_needs,
    with_overlay_addresses,
)
from spawner_config.swarm.shared_home import SharedHome

MANAGER: dict[str, Any] = {"Swarm": {"NodeID": "n1", "ControlAvailable": True}}


def settings(**more: str) -> DockerSettings:
    return DockerSettings.from_environment({"FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1", **more})


def profile(**more: Any) -> Profile:
    return Profile(name="fast", description="", **more)


def test_subnets_have_128_addresses() -> None:
    assert with_overlay_addresses(settings()).addresses.prefix == 25


def test_a_range_smaller_than_a_subnet_is_refused() -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_SUBNETS: 10.0.0.0/26 is too small: it must be /25 or larger"):
        with_overlay_addresses(settings(FARANDOLE_SUBNETS="10.0.0.0/26"))


def test_the_engine_must_be_a_manager_and_all_engines_recent_enough() -> None:
    check_engine(MANAGER, "1.44")
    with pytest.raises(SettingsError, match="engine 25 or newer"):
        check_engine(MANAGER, "1.43")
    for info in ({}, {"Swarm": {"NodeID": "n2", "ControlAvailable": False}}):
        with pytest.raises(SettingsError, match="docker swarm init"):
            check_engine(info, "1.45")


def test_groups_need_a_shared_folder() -> None:
    ours = settings(FARANDOLE_GROUP_FOLDERS="nlp")
    check_groups(ours, SharedHome(path="/mnt/homes"))
    check_groups(settings(), None)
    with pytest.raises(SettingsError, match="FARANDOLE_GROUP_FOLDERS needs FARANDOLE_SWARM_HOMES"):
        check_groups(ours, None)


def test_homes_on_a_swarm_with_internet_need_a_firewall() -> None:
    homes = SharedHome(path="/homes", server="files.example.org")
    with pytest.raises(SettingsError, match="could mount the homes of all users.*rules of `make doctor`"):
        check_firewall({}, settings(), homes)
    check_firewall({"FARANDOLE_FIREWALL": "set"}, settings(), homes)
    check_firewall({}, settings(FARANDOLE_INTERNET="no"), homes)
    check_firewall({}, settings(), None)
    with pytest.raises(SettingsError, match="FARANDOLE_FIREWALL is 'yes'. It must be empty or set"):
        check_firewall({"FARANDOLE_FIREWALL": "yes"}, settings(), None)


def test_a_profile_sets_the_requirements_of_its_node() -> None:
    found = node_needs(profile(gpus=2, gpu_class="big", swarm={"labels": {"disk": "fast"}}))
    assert found == NodeNeeds(gpus=2, gpu_class="big", node_labels={"disk": "fast"})
    assert node_needs(profile()) == NodeNeeds()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"label": {}}, "unknown key 'label'"),
        ({"labels": "fast"}, "table of text values"),
        ({"labels": {"disk": 1}}, "table of text values"),
        ({"labels": {"a b": "x"}}, "table of text values"),
        ({"labels": {"disk": "fast || true"}}, "table of text values"),
    ],
)
def test_impossible_requirements_are_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        node_needs(profile(swarm=table))
