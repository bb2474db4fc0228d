"""Runs the notebook on slow networks in containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.data import cinic10, first_images
from tests.docker.unpacking import unpacking
from tests.three_pcs import CELL_SECONDS, NOTEBOOK, assert_compared, run_notebook

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docker.stack import Stack

PER_CLASS = 20
"""The images of a class that the notebook reads from each folder."""


# Containers of two workers train for minutes; tests/integration/test_three_pcs.py runs the same cells on a local hub.
@pytest.mark.release
@pytest.mark.timeout(1200)
def test_the_notebook_trains_in_each_mode_in_containers(stack: Stack, tmp_path: Path) -> None:
    images = cinic10(tmp_path)
    with stack.kernel("ada", path=NOTEBOOK.name) as kernel:
        kernel.execute(unpacking(first_images(images, PER_CLASS), images, "images"), deadline=CELL_SECONDS)
        assert_compared(run_notebook(kernel, data="images", backend="torch"))
