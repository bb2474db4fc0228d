"""Fixtures for several folders of unit tests."""

import pytest
from farandole.models.store import ModelStore


@pytest.fixture
def model_store(tmp_path, monkeypatch):
    """The store in which the models of a test are saved, in a temporary folder."""
    monkeypatch.setenv("FARANDOLE_MODELS", str(tmp_path / "models"))
    return ModelStore()
