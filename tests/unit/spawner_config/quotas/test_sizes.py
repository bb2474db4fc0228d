"""Tests for the setting with the sizes of homes."""

from __future__ import annotations

import pytest

from spawner_config.containers.settings import DockerSettings
from spawner_config.kubernetes.settings import KubernetesSettings
from spawner_config.quotas.sizes import HomeSizes, parse_sizes, quantity
from spawner_config.settings import SettingsError

GIB = 2**30
NEEDED = {"FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1"}


def test_one_size_is_for_all() -> None:
    assert parse_sizes("10G") == parse_sizes(" 10Gi ") == HomeSizes(all=10 * GIB)
    assert parse_sizes("512M").all == GIB // 2
    assert parse_sizes("2Ti").all == 2048 * GIB
    assert not parse_sizes("")
    assert parse_sizes("ada: 1G")


def test_a_users_own_size_counts_before_that_of_groups() -> None:
    sizes = parse_sizes("10G, Ada: 5G, @vision: 50G, @nlp: 100G")
    assert sizes.of("grace", set()) == 10 * GIB
    assert sizes.of("grace", {"vision"}) == 50 * GIB
    assert sizes.of("grace", {"vision", "nlp", "other"}) == 100 * GIB
    assert sizes.of("ada", {"nlp"}) == 5 * GIB


def test_without_a_size_for_all_others_have_no_limit() -> None:
    sizes = parse_sizes("ada: 5G")
    assert (sizes.of("ada", set()), sizes.of("grace", set())) == (5 * GIB, None)


@pytest.mark.parametrize("text", ["10", "10 GB", "0G", "-1G", "1.5G", "10K", "ada", "ada:", ":10G", "@: 10G", "ada=5G"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match=r"FARANDOLE_HOME_SIZE has '.*'\. It must be sizes such as '10G'"):
        parse_sizes(f"1G, {text}" if text != "1G" else text)


@pytest.mark.parametrize("text", ["10G, 20G", "ada: 1G, ADA: 2G", "@nlp: 1G, @nlp: 1G"])
def test_two_sizes_for_one_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_HOME_SIZE has two sizes for"):
        parse_sizes(text)


def test_a_claim_always_has_a_size() -> None:
    def sizes(value: str) -> HomeSizes:
        return KubernetesSettings.from_environment({**NEEDED, "FARANDOLE_HOME_SIZE": value}).home_size

    assert sizes("").all == 10 * GIB
    assert sizes("20Gi").all == 20 * GIB
    assert (sizes("ada: 50Gi").all, sizes("ada: 50Gi").of("ada", set())) == (10 * GIB, 50 * GIB)
    found = [quantity(size) for size in (GIB // 2, GIB, 1536 * 2**20, 2048 * GIB)]
    assert found == ["512Mi", "1Gi", "1536Mi", "2048Gi"]


def test_homes_in_volumes_have_no_limit_by_default() -> None:
    assert not DockerSettings.from_environment(NEEDED).home_size
    with pytest.raises(SettingsError, match="FARANDOLE_HOME_SIZE has 'much'"):
        DockerSettings.from_environment({**NEEDED, "FARANDOLE_HOME_SIZE": "much"})
