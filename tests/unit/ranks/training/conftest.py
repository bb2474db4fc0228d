"""Fixtures for tests of ``fd.prepare``."""

import pytest
from farandole.ranks.training.mesh import shape


@pytest.fixture(autouse=True)
def no_earlier_model():
    """Let loaders that are prepared without a model not follow that of an earlier test."""
    shape.current.cache_clear()
