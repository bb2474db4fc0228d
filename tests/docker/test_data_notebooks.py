"""Runs the notebooks that prepare data, train and compute results with it in containers, and the one on large models.

They train in containers for minutes. The tests of the same notebooks in tests/integration run the same cells on a local
hub, so these tests have the marker `release`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import images_at_scale, models_that_do_not_fit, nowcasting, recommender
from tests.data import cinic10, first_images, msweb, radar
from tests.docker.conftest import WORKERS
from tests.docker.unpacking import unpacking

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docker.stack import Stack

pytestmark = [pytest.mark.release, pytest.mark.timeout(1200)]
UNPACK_SECONDS = 60.0
TARGET = "given"
"""The folder in the user's home with the files of a notebook."""


def test_the_notebook_finds_similar_images_in_containers(stack: Stack, tmp_path: Path) -> None:
    data = cinic10(tmp_path)
    files = first_images(data, images_at_scale.PER_CLASS)
    with stack.kernel("monet", path=images_at_scale.NOTEBOOK.name) as kernel:
        kernel.execute(unpacking(files, data, TARGET), deadline=UNPACK_SECONDS)
        shown = images_at_scale.run_notebook(kernel, images_at_scale.SMALL.format(data=TARGET))
    images_at_scale.assert_complete(shown, data)


def test_the_notebook_predicts_rain_in_containers(stack: Stack, tmp_path: Path) -> None:
    data = radar(tmp_path)
    with stack.kernel("huygens", path=nowcasting.NOTEBOOK.name) as kernel:
        kernel.execute(unpacking([data], data.parent, TARGET), deadline=UNPACK_SECONDS)
        outputs = nowcasting.run_notebook(kernel, nowcasting.SMALL.format(data=f"{TARGET}/{data.name}"))
    nowcasting.assert_reported(outputs, data)


def test_the_notebook_builds_a_recommender_in_containers(stack: Stack, tmp_path: Path) -> None:
    data = msweb(tmp_path)
    with stack.kernel("zipf", path=recommender.NOTEBOOK.name) as kernel:
        kernel.execute(unpacking(data.glob("*.csv"), data, TARGET), deadline=UNPACK_SECONDS)
        outputs = recommender.run_notebook(kernel, recommender.SMALL.format(data=TARGET))
    recommender.assert_recommended(outputs)


def test_the_notebook_trains_on_meshes_in_containers(stack: Stack) -> None:
    ranks = (1, 2, WORKERS)
    with stack.kernel("gulliver", path=models_that_do_not_fit.NOTEBOOK.name) as kernel:
        outputs = models_that_do_not_fit.run_notebook(kernel, ranks)
    models_that_do_not_fit.assert_compared(outputs, ranks)
