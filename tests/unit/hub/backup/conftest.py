"""A hub with two users, and a place for its backups, in folders."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.clients.backups import LocalHub

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> LocalHub:
    """A hub that is copied for each test, because a key of a repository takes a second."""
    hub = LocalHub(tmp_path_factory.mktemp("hub"))
    hub.fill()
    return hub


@pytest.fixture
def hub(template: LocalHub, tmp_path: Path) -> LocalHub:
    """A hub for one test."""
    found = LocalHub(tmp_path / "hub")
    shutil.copytree(template.state, found.state, symlinks=True)
    return found


@pytest.fixture
def new(tmp_path: Path) -> LocalHub:
    """A machine without a hub."""
    return LocalHub(tmp_path / "new")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of the backups."""
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder
