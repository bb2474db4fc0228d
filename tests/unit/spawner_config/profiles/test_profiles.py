from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spawner_config.profiles.profiles import Profile, ProfileError, parse_gpus, parse_profiles, read_profiles
from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def profile_set_of(**changes: Any) -> Any:
    return parse_profiles({"profile": [{"name": "cpu", "description": "CPU", **changes}]})


def test_the_profiles_of_the_repository_are_valid() -> None:
    profile_set = read_profiles(ROOT / "hub" / "profiles.toml")
    assert [profile.name for profile in profile_set.profiles] == ["cpu", "cpu-2", "lean", "serving"]
    assert [profile.ranks for profile in profile_set.profiles] == [1, 2, 1, 1]
    assert profile_set.default.name == "cpu"
    assert (profile_set.limits.workers_per_user, profile_set.limits.ranks_per_worker) == (16, 8)


def test_a_misspelled_profile_is_suggested() -> None:
    with pytest.raises(LookupError) as caught:
        profile_set_of(name="large").get("lage")
    assert str(caught.value) == "There is no profile 'lage' here. Choose one of: large. Did you mean 'large'?"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"ranks": 0}, "ranks"),
        ({"ranks": True}, "ranks"),
        ({"ranks": 9}, "ranks"),
        ({"cpus": -1}, "cpus"),
        ({"cpus": "two"}, "cpus"),
        ({"memory": "much"}, "memory"),
        ({"memory": 4}, "memory"),
        ({"name": "With Space"}, "name"),
        ({"name": 3}, "name"),
        ({"environment": {"A": 1}}, "environment"),
        ({"gpu": 1}, "gpu"),
        ({"data": "imagenet"}, "data"),
        ({"data": [1]}, "data"),
        ({"gpus": -1}, "gpus"),
        ({"gpus": 1}, "gpus of profile 'cpu'"),
        ({"gpu_class": "big"}, "gpu_class"),
    ],
)
def test_the_error_of_an_invalid_value_names_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ProfileError, match=key):
        profile_set_of(**changes)


@pytest.mark.parametrize("content", [{}, {"profile": []}, {"profile": [{"name": "a"}]}, {"profiles": []}])
def test_a_file_without_a_complete_profile_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ProfileError):
        parse_profiles(content)


@pytest.mark.parametrize("limits", [{"workers_per_user": 0}, {"ranks_per_worker": "8"}, {"users": 3}])
def test_invalid_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ProfileError, match="limits"):
        parse_profiles({"profile": [{"name": "cpu", "description": ""}], "limits": limits})


def test_names_must_be_unique() -> None:
    table = {"name": "cpu", "description": ""}
    with pytest.raises(ProfileError, match="different"):
        parse_profiles({"profile": [table, table]})


@pytest.mark.parametrize("text", ["[[profile", None])
def test_an_unreadable_file_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "profiles.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ProfileError, match=r"profiles\.toml"):
        read_profiles(path)


def test_ranks_share_the_cpus() -> None:
    profile = Profile(name="big", description="", cpus=8, environment={"A": "b"})
    assert profile.variables(ranks=4) == {"OMP_NUM_THREADS": "2", "A": "b"}
    assert Profile(name="small", description="", cpus=0.5).variables()["OMP_NUM_THREADS"] == "1"
    assert Profile(name="any", description="").variables() == {}


def test_the_environment_of_a_profile_has_priority() -> None:
    profile = Profile(name="one", description="", cpus=4, environment={"OMP_NUM_THREADS": "1"})
    assert profile.variables() == {"OMP_NUM_THREADS": "1"}


GPU_TABLES = [{"id": "0", "class": "big"}, {"id": "GPU-00aa", "class": "big"}, {"id": "2", "class": "small"}]


def gpu_profile_set(host: str | None = None, **profile: Any) -> Any:
    content = {"gpu": GPU_TABLES, "profile": [{"name": "gpu", "description": "GPU", **profile}]}
    return parse_profiles(content, parse_gpus(host) if host else None)


def test_a_host_has_the_configured_gpus() -> None:
    profile_set = gpu_profile_set(gpus=2, gpu_class="big")
    assert [(gpu.id, gpu.gpu_class) for gpu in profile_set.gpus] == [("0", "big"), ("GPU-00aa", "big"), ("2", "small")]
    assert profile_set.default.public()["gpus"] == 2
    assert [gpu.id for gpu in gpu_profile_set("7:big, 8:big").gpus] == ["7", "8"]


@pytest.mark.parametrize(
    ("host", "profile", "reason"),
    [
        (None, {"gpus": 4}, "at most 3"),
        (None, {"gpus": 3, "gpu_class": "big"}, "at most 2, the number of GPUs of class 'big'"),
        (None, {"gpus": 1, "gpu_class": "other"}, "at most 0"),
        ("0:big", {"gpus": 2}, "at most 1"),
        ("0:big,0:big", {}, "different for each GPU"),
        ("0", {}, "FARANDOLE_GPUS"),
        ("first:big", {}, "FARANDOLE_GPUS"),
    ],
)
def test_invalid_gpus_are_refused(host: str | None, profile: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProfileError, match=reason):
        gpu_profile_set(host, **profile)


def test_a_host_with_gpus_has_a_profile_with_one() -> None:
    profile_set = parse_profiles(
        {"profile": [{"name": "cpu", "description": "CPU"}]}, parse_gpus("0:big,1:big,2:small")
    )
    assert [profile.name for profile in profile_set.profiles] == ["cpu", "big", "small"]
    assert (profile_set.get("big").gpus, profile_set.get("big").gpu_class) == (1, "big")
    assert [profile.name for profile in gpu_profile_set(gpus=1).profiles] == ["gpu"]


@pytest.mark.parametrize("table", [{"id": 0, "class": "big"}, {"id": "0"}, {"id": "0", "class": "big", "name": "x"}])
def test_invalid_gpu_tables_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ProfileError):
        parse_profiles({"gpu": [table], "profile": [{"name": "cpu", "description": "CPU"}]})
