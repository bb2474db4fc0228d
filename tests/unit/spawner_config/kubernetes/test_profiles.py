"""Tests for the table [profile.kubernetes] of a profile."""

from __future__ import annotations

from typing import Any

import pytest

from spawner_config.kubernetes.profiles import NODE, ZONE, PodNeeds
from spawner_config.profiles.profiles import Profile, ProfileError, parse_profiles, read_profiles
from spawner_config.settings import ROOT


def profile(**table: Any) -> Profile:
    return Profile(name="gpu", description="one", kubernetes=table)


def test_a_profile_without_the_table_requests_nothing() -> None:
    needs = PodNeeds.of(Profile(name="cpu", description=""))
    assert needs == PodNeeds()
    assert (needs.tolerated(), needs.preferred(), needs.near({"a": "b"}), needs.far({"a": "b"})) == ([], [], [], [])


def test_only_named_taints_are_tolerated() -> None:
    needs = PodNeeds.of(profile(tolerations=["nvidia.com/gpu", "team=vision:NoSchedule", "spot:NoExecute"]))
    assert needs.tolerated() == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
    ]


def test_the_first_preferred_label_has_the_largest_weight() -> None:
    terms = PodNeeds.of(profile(prefer={"gpus": "newer", "zone": "a"})).preferred()
    assert [term["weight"] for term in terms] == [100, 80]
    assert terms[0]["preference"]["matchExpressions"] == [{"key": "gpus", "operator": "In", "values": ["newer"]}]


@pytest.mark.parametrize(("workers", "near", "far"), [("together", [NODE, ZONE], []), ("apart", [], [NODE])])
def test_workers_are_near_each_other_or_apart(workers: str, near: list[str], far: list[str]) -> None:
    needs = PodNeeds.of(profile(workers=workers))
    labels = {"cluster": "main"}
    assert [term["podAffinityTerm"]["topologyKey"] for term in needs.near(labels)] == near
    assert [term["podAffinityTerm"]["topologyKey"] for term in needs.far(labels)] == far
    for term in needs.near(labels) + needs.far(labels):
        assert term["podAffinityTerm"]["labelSelector"] == {"matchLabels": labels}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node_selector", ["a"]),
        ("node_selector", {"a": 1}),
        ("node_selector", {"a b": "x"}),
        ("prefer", {"a": "no value"}),
        ("tolerations", "nvidia.com/gpu"),
        ("tolerations", ["a=b:Sometimes"]),
        ("workers", "close"),
        ("priority", "Training High"),
        ("queue", ""),
        ("cpu_request", 0),
        ("cpu_request", True),
        ("memory_request", "1 GB"),
        ("shared_memory", "512K"),
    ],
)
def test_an_invalid_value_is_refused_with_profile_and_key(key: str, value: Any) -> None:
    with pytest.raises(ProfileError, match=f"kubernetes of profile 'gpu': {key} must be"):
        PodNeeds.of(profile(**{key: value}))


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ProfileError, match="unknown key 'node_selectors'.*Known keys: node_selector, prefer"):
        PodNeeds.of(profile(node_selectors={}))
    with pytest.raises(ProfileError, match="kubernetes must be a table"):
        Profile(name="gpu", description="", kubernetes="gpu")  # type: ignore[arg-type]


def test_kubernetes_counts_its_gpus_itself() -> None:
    content = {"profile": [{"name": "gpu", "description": "", "gpus": 8, "gpu_class": "NVIDIA-A100"}]}
    assert parse_profiles(content, counted=False).default.gpus == 8
    with pytest.raises(ProfileError, match="at most 0"):
        parse_profiles(content)


def test_the_example_profiles_are_complete() -> None:
    profile_set = read_profiles(ROOT / "hub/kubernetes/site.example/profiles.toml", counted=False)
    needs = {each.name: PodNeeds.of(each) for each in profile_set.profiles}
    assert {each.priority for each in needs.values()} == {
        None,
        "farandole-training-high",
        "farandole-training-low",
        "farandole-serving",
    }
