"""Tests for the folder with what an upgrade needs to go back."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from hub.upgrade.compose import UpgradeError
from hub.upgrade.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

NEW = {"FARANDOLE_VERSION": "0.2.0", "FARANDOLE_HUB_IMAGE": "hub@sha256:1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".env").write_text("FARANDOLE_VERSION=0.1.0\n")
    (tmp_path / ".env").chmod(0o600)
    (tmp_path / "docker-compose.yml").write_text("old")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_journal_is_read_again(folder: Path) -> None:
    assert Journal.read(folder) is None
    begun = Journal.begin(folder, "0.1.0", NEW, "unknown")
    assert Journal.read(folder) == begun
    assert begun.env == "FARANDOLE_VERSION=0.1.0\n"
    assert (begun.to, begun.settings) == ("0.2.0", NEW)
    assert begun.compose_file is None
    assert begun.dump is None
    assert begun.folder.stat().st_mode & 0o077 == 0
    (begun.folder / "4621fec11365.sql").touch()
    assert begun.dump
    assert begun.dump.stem == "4621fec11365"


def test_the_compose_file_of_before_comes_from_the_checkout(folder: Path) -> None:
    git(folder, "init", "--quiet")
    git(folder, "add", "docker-compose.yml")
    git(folder, "commit", "--quiet", "-m", "old")
    revision = git(folder, "describe", "--always", "--abbrev=12")
    (folder / "docker-compose.yml").write_text("new")
    begun = Journal.begin(folder, "0.1.0", NEW, f"{revision}-dirty")
    assert begun.compose_file
    assert begun.compose_file.read_text() == "old"


def test_a_half_written_journal_is_none(folder: Path) -> None:
    (folder / ".upgrade.part").mkdir()
    (folder / ".upgrade.part" / "left").touch()
    assert Journal.read(folder) is None
    assert not (Journal.begin(folder, "0.1.0", NEW, "").folder / "left").exists()


@pytest.mark.parametrize("text", ['{"before": ', "[]", "{}"])
def test_a_damaged_journal_is_named_and_kept(folder: Path, text: str) -> None:
    begun = Journal.begin(folder, "0.1.0", NEW, "")
    (begun.folder / "versions.json").write_text(text)
    with pytest.raises(UpgradeError, match=r"\.upgrade/versions\.json .* cannot be read .* remove "):
        Journal.read(folder)
    assert (begun.folder / ".env").exists()


def test_a_finished_journal_is_kept_under_a_free_name(folder: Path) -> None:
    for expected in ("upgraded-from-0.1.0", "upgraded-from-0.1.0-2", "upgraded-from-0.1.0-3"):
        assert Journal.begin(folder, "0.1.0", NEW, "").finish().name == expected
    begun = Journal.begin(folder, "0.1.0", NEW, "")
    begun.remove()
    assert not [path for path in folder.iterdir() if path.name.startswith(".upgrade")]
