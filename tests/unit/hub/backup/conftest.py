"""A hub with two users, and a place for its backups, in folders."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from hub.backup.operations import back_up
from tests.clients.backups import LocalHub

if TYPE_CHECKING:
    from pathlib import Path

    from hub.backup.manifest import Manifest


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> LocalHub:
    """A hub that is copied for each test, because a key of a repository takes a second."""
    hub = LocalHub(tmp_path_factory.mktemp("hub"))
    hub.fill()
    return hub


@pytest.fixture(scope="session")
def saved(template: LocalHub, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """A place with a backup of the template, which is copied for each test as well."""
    folder = tmp_path_factory.mktemp("backups")
    return folder, back_up(template.site, template.place(folder))


@pytest.fixture
def hub(template: LocalHub, saved: tuple[Path, Manifest], tmp_path: Path) -> LocalHub:
    """A hub for one test, which has been backed up once."""
    found = LocalHub(tmp_path / "hub")
    shutil.copytree(template.state, found.state, symlinks=True)
    return found


@pytest.fixture
def new(tmp_path: Path) -> LocalHub:
    """A machine without a hub."""
    return LocalHub(tmp_path / "new")


@pytest.fixture
def manifest(saved: tuple[Path, Manifest]) -> Manifest:
    """The manifest of the hub's first backup."""
    return saved[1]


@pytest.fixture
def place(saved: tuple[Path, Manifest], tmp_path: Path) -> Path:
    """The folder of the backups, with the first one."""
    return shutil.copytree(saved[0], tmp_path / "backups")


@pytest.fixture
def empty_place(tmp_path: Path) -> Path:
    """A folder without backups."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder
