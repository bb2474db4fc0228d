"""Runs the notebook on slow networks in containers."""

from __future__ import annotations

import base64
import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.data import cinic10
from tests.three_pcs import CELL_SECONDS, NOTEBOOK, assert_compared, run_notebook

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docker.stack import Stack

PER_CLASS = 20
UNPACK = """
import base64, io, tarfile
tarfile.open(fileobj=io.BytesIO(base64.b64decode({archive!r}))).extractall("images")
"""


def archive(images: Path) -> str:
    """Return the images that the notebook reads, as an archive in base 64."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for folder in sorted(images.glob("*/*/")):
            for file in sorted(folder.glob("*.png"))[:PER_CLASS]:
                tar.add(file, file.relative_to(images))
    return base64.b64encode(packed.getvalue()).decode()


# Containers of two workers train for minutes; tests/integration/test_three_pcs.py runs the same cells on a local hub.
@pytest.mark.release
@pytest.mark.timeout(1200)
def test_the_notebook_trains_in_each_mode_in_containers(stack: Stack, tmp_path: Path) -> None:
    with stack.kernel("ada", path=NOTEBOOK.name) as kernel:
        kernel.execute(UNPACK.format(archive=archive(cinic10(tmp_path))), deadline=CELL_SECONDS)
        assert_compared(run_notebook(kernel, data="images", backend="torch"))
