"""Tests for versions of data sets on a hub without containers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from farandole.datasets.versions.mounted import VARIABLE
from farandole.datasets.versions.publish import PUBLISH_TO, publish

from spawner_config.local_data import LocalData
from spawner_config.profiles.options import OptionsError
from spawner_config.profiles.profiles import Profile
from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

CPU = Profile(name="cpu", description="")
WITHOUT_DATA = Profile(name="none", description="", data=[])


def variables(environ: dict[str, str], folder: Path, user: str, name: str = "", profile: Profile = CPU) -> Any:
    spawner = SimpleNamespace(name=name, user=SimpleNamespace(name=user), environment={"PATH": "/bin"})
    LocalData.from_environment(environ, folder).set_variables(spawner, profile)
    assert spawner.environment.pop("PATH") == "/bin"
    return spawner.environment


def test_only_notebook_servers_of_publishers_may_publish(tmp_path: Path) -> None:
    environ = {"FARANDOLE_DATA_PUBLISHERS": "Ada grace"}
    assert variables(environ, tmp_path, "ada") == {PUBLISH_TO: str(tmp_path)}
    assert variables(environ, tmp_path, "ada", "main-w0") == {}
    assert variables(environ, tmp_path, "emmy") == {}
    assert variables({}, tmp_path, "ada") == {}


def test_servers_have_the_published_versions_that_the_setting_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PUBLISH_TO, str(tmp_path / "datasets"))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("1")
    publish(tmp_path / "source", "digits")
    environ = {"FARANDOLE_SHARED_VOLUMES": "digits@1:/data/digits, web:/data/web"}
    folder = tmp_path / "datasets"
    for name in ("", "main-w0"):
        found = variables(environ, folder, "emmy", name)
        assert json.loads(found[VARIABLE]) == {"digits@1": str(folder / "digits" / "1")}
    assert variables(environ, folder, "emmy", profile=WITHOUT_DATA) == {}


def test_a_version_that_is_not_published_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="no data set digits@1, .* until it is published"):
        variables({"FARANDOLE_SHARED_VOLUMES": "digits@1:/data/digits"}, tmp_path, "emmy")


def test_an_invalid_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="FARANDOLE_SHARED_VOLUMES"):
        LocalData.from_environment({"FARANDOLE_SHARED_VOLUMES": "digits@x:/data/digits"}, tmp_path)
