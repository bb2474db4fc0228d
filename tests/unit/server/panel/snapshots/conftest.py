"""Fixtures for tests of the panel's snapshots: a home, and a repository of the real restic in a folder."""

from __future__ import annotations

import tempfile

import pytest

from tests.repositories import create_repository
from tests.unit.snapshots.conftest import PASSWORD, make_site


@pytest.fixture(scope="package")
def empty(tmp_path_factory):
    """A new repository, which tests copy, because creating one takes long."""
    folder = tmp_path_factory.mktemp("empty") / "repository"
    create_repository(folder, PASSWORD)
    return folder


@pytest.fixture
def site(tmp_path, empty, monkeypatch):
    """A home, which is also the root of the notebook server, and its repository."""
    made = make_site(tmp_path, empty)
    monkeypatch.setenv("HOME", str(made.home))
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "cache"))
    return made
