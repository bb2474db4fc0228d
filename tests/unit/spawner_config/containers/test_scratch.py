"""Tests for the limit on what a container writes outside of its volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from docker.errors import APIError

from spawner_config.containers.scratch import ScratchLimit
from spawner_config.containers.settings import DockerSettings
from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = "--storage-opt is supported only for overlay over xfs with 'pquota' mount option"
LIMITED = {"pids_limit": 5, "storage_opt": {"size": "10G"}}


@pytest.fixture
def errors() -> Iterator[APIError]:
    return iter([APIError("refused", explanation="no space left"), APIError("refused", explanation=REFUSED)])


def test_a_container_has_the_limit_until_the_engine_refuses_it(
    errors: Iterator[APIError], caplog: pytest.LogCaptureFixture
) -> None:
    limit = ScratchLimit("10G")
    assert limit.add_to({"pids_limit": 5}) == limit.add_to(LIMITED) == LIMITED
    assert not limit.drop_if_unsupported(next(errors))
    assert limit.add_to({"pids_limit": 5}) == LIMITED
    assert limit.drop_if_unsupported(next(errors))
    assert limit.add_to(LIMITED) == {"pids_limit": 5}
    [line] = caplog.messages
    assert f"({REFUSED}), so FARANDOLE_SCRATCH has no effect" in line


def test_without_the_setting_an_error_remains_an_error() -> None:
    limit = ScratchLimit("")
    assert limit.add_to({"pids_limit": 5}) == {"pids_limit": 5}
    assert not limit.drop_if_unsupported(APIError("refused", explanation=REFUSED))


def test_the_setting_is_a_size() -> None:
    needed = {"FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1"}
    assert DockerSettings.from_environment(needed).scratch == ""
    assert DockerSettings.from_environment({**needed, "FARANDOLE_SCRATCH": "10G"}).scratch == "10G"
    with pytest.raises(SettingsError, match="FARANDOLE_SCRATCH is 'much'. It must be text such as '512M' or '4G'"):
        DockerSettings.from_environment({**needed, "FARANDOLE_SCRATCH": "much"})
