"""Fixtures for tests of snapshots: a home, and a repository of the real restic in a folder."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from farandole.snapshots.connection import Repository
from farandole.snapshots.contents import SnapshotContents
from farandole.snapshots.snapshots import Snapshots

from tests.homes import make_strange
from tests.repositories import create_repository

PASSWORD = "correct horse"


@dataclass(frozen=True)
class Site:
    """A home, and the folder of the repository with its snapshots."""

    home: Path
    repository: Path

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(home=self.home, connect=self.connect)

    @property
    def contents(self) -> SnapshotContents:
        return SnapshotContents(home=self.home, connect=self.connect)

    def connect(self) -> Repository:
        return Repository(url=str(self.repository), password=PASSWORD)


@pytest.fixture(scope="package", autouse=True)
def restic_cache(tmp_path_factory):
    """Remove the cache of these repositories at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="package")
def empty_repository(tmp_path_factory):
    """A new repository, which tests copy, because creating one takes long."""
    folder = tmp_path_factory.mktemp("empty") / "repository"
    create_repository(folder, PASSWORD)
    return folder


def make_site(folder, empty_repository):
    (folder / "home").mkdir()
    shutil.copytree(empty_repository, folder / "repository")
    return Site(folder / "home", folder / "repository")


@pytest.fixture
def site(tmp_path, empty_repository, monkeypatch):
    """A home without files and a repository without snapshots."""
    made = make_site(tmp_path, empty_repository)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.delenv("FARANDOLE_RUNS", raising=False)
    return made


@pytest.fixture(scope="package")
def strange(tmp_path_factory, empty_repository):
    """A home with files that are not easy to restore, and one snapshot of it."""
    made = make_site(tmp_path_factory.mktemp("strange"), empty_repository)
    make_strange(made.home / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(made.home))
        made.snapshots.take("strange")
    return made
