"""A hub with the snapshots of two users, and its mirror in a folder."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.clients.mirrors import HubFiles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> HubFiles:
    """A hub with two snapshots of ada and one of zoë, which is copied for each test, because a key takes a second."""

    async def take() -> None:
        await hub.take("ada", b"first")
        await hub.take("ada", b"second", "--tag", "message=before%20cleaning")
        await hub.take("zoë", b"secret")

    hub = HubFiles(tmp_path_factory.mktemp("hub"))
    asyncio.run(take())
    return hub


@pytest.fixture
def hub(template: HubFiles, tmp_path: Path) -> HubFiles:
    """A hub for one test."""
    found = HubFiles(tmp_path / "hub")
    shutil.rmtree(found.state)
    shutil.copytree(template.state, found.state)
    found.start()
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of a mirror."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    return folder
