"""Fixtures for the tests of data sets."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder of copies, which is empty at the beginning of each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FARANDOLE_DATASETS", str(tmp_path / "scratch"))
    return tmp_path / "cache" / "farandole" / "datasets"
