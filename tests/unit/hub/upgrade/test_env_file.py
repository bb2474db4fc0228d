"""Tests for changes of settings in `.env`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hub.doctor.deployment import read_env_file
from hub.upgrade.env_file import replace_text, with_settings

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """# FARANDOLE_VERSION=0.0.9 is a comment
FARANDOLE_ADMIN='it is $me'
 export FARANDOLE_VERSION = 0.1.0  # of today

FARANDOLE_REGISTRY=
"""


def test_only_the_given_settings_change() -> None:
    changed = with_settings(TEXT, {"FARANDOLE_VERSION": "0.2.0", "FARANDOLE_HUB_IMAGE": "hub@sha256:1"})
    assert changed.splitlines() == [
        "# FARANDOLE_VERSION=0.0.9 is a comment",
        "FARANDOLE_ADMIN='it is $me'",
        "FARANDOLE_VERSION=0.2.0",
        "",
        "FARANDOLE_REGISTRY=",
        "FARANDOLE_HUB_IMAGE=hub@sha256:1",
    ]


def test_of_several_lines_the_last_one_changes(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(with_settings("A=1\nA=2\nAB=3\n", {"A": "4"}))
    assert read_env_file(tmp_path / ".env") == {"A": "4", "AB": "3"}


def test_the_mode_of_the_file_stays_and_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("old")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / ".env").symlink_to("secret")
    replace_text(tmp_path / ".env", "new")
    assert (tmp_path / ".env").is_symlink()
    assert (tmp_path / "secret").read_text() == "new"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {".env", "secret"}
