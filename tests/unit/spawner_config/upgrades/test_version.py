"""Tests for the file that records which version has used the hub's state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from spawner_config.settings import SettingsError
from spawner_config.upgrades.version import NAME, Before, StateVersion

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert StateVersion.read(tmp_path) is None
    before = Before(version="0.1.0", revision="a", database="jupyterhub-20261130T120000Z.sqlite")
    written = StateVersion(version="0.2.0", revision="b", before=before)
    written.write(tmp_path)
    assert StateVersion.read(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_file_of_a_newer_version_may_have_more_keys(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps({"version": "9.0.0", "revision": "z", "more": [1]}))
    found = StateVersion.read(tmp_path)
    assert found
    assert found.version == "9.0.0"


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"version": "new", "revision": ""}', "\0\0"])
def test_a_damaged_file_is_named_with_a_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(SettingsError, match=rf"{NAME} is damaged.*make restore"):
        StateVersion.read(tmp_path)


@pytest.mark.parametrize(
    ("used", "hub", "older"),
    [
        ("0.1.0", "0.1.0", False),
        ("0.9.0", "0.10.0", False),
        ("0.2.0rc1", "0.2.0", False),
        ("0.10.0", "0.9.0", True),
        ("0.2.0", "0.2.0rc1", True),
        ("1.0", "1.0.0", False),
    ],
)
def test_an_older_hub_is_refused(used: str, hub: str, older: bool) -> None:
    version = StateVersion(version=used, revision="")
    if not older:
        version.check(hub)
        return
    with pytest.raises(SettingsError, match=rf"Version {used} .*Use version {used} or newer, or restore"):
        version.check(hub)
