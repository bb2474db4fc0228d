"""Fixtures for several folders of unit tests."""

import gc
import logging

import pytest
from farandole.models.store import ModelStore

from tests.registry import BASE, push_serving_image, running_registry


@pytest.fixture(scope="module", autouse=True)
def cheap_collections():
    """Exclude all existing objects from garbage collection before each module, so that its tests run faster."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def tornado_logs():
    """Let tests see what is logged by tornado's loggers. An import of `distributed` disables them for its process."""
    for name in ("tornado", "tornado.application"):
        logging.getLogger(name).propagate = True
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def model_store(tmp_path, monkeypatch):
    """The store in which the models of a test are saved, in a temporary folder."""
    monkeypatch.setenv("FARANDOLE_MODELS", str(tmp_path / "models"))
    return ModelStore()


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A real registry that contains a small serving image."""
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        push_serving_image(running.reference(BASE))
        yield running
