"""Fixtures for the tests of accounts and tokens: a hub's database, and hashes that cost little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import bcrypt
import pytest
from jupyterhub import orm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.orm import Session


@pytest.fixture
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash new passwords with bcrypt's lowest cost factor, because the usual one takes 0.25 s for each."""
    gensalt = bcrypt.gensalt
    monkeypatch.setattr(bcrypt, "gensalt", lambda: gensalt(4))


@pytest.fixture
def database(tmp_path: Path, cheap_hashes: None) -> Iterator[Session]:
    """A session on a new, empty hub database."""
    session = orm.new_session_factory(f"sqlite:///{tmp_path}/hub.sqlite")()
    yield session
    session.close()
    session.bind.dispose()
