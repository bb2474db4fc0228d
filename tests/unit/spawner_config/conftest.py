"""A fixture with a hub's database, for the tests of accounts and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from jupyterhub import orm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.orm import Session


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Session]:
    """A session on a new, empty hub database."""
    session = orm.new_session_factory(f"sqlite:///{tmp_path}/hub.sqlite")()
    yield session
    session.close()
    session.bind.dispose()
