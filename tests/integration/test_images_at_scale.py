"""Runs the notebook that finds similar images in photos on a real hub."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import CellError, RemoteKernel
from tests.data import cinic10
from tests.images_at_scale import NOTEBOOK, OTHER_FEATURES, RULES, SMALL, assert_complete, run_notebook
from tests.notebooks import own_parameters

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEEDS = range(3)


@pytest.fixture
def kernel(open_notebook: Callable[[Path], RemoteKernel]) -> RemoteKernel:
    return open_notebook(NOTEBOOK)


@pytest.mark.timeout(600)
def test_the_notebook_detects_crops_and_finds_similar_images(kernel: RemoteKernel, tmp_path: Path) -> None:
    data = cinic10(tmp_path)
    assert_complete(run_notebook(kernel, SMALL.format(data=str(data))), data)


@pytest.mark.timeout(300)
def test_without_the_images_the_notebook_says_where_to_get_them(kernel: RemoteKernel, tmp_path: Path) -> None:
    images = tmp_path / "none"
    (images / "train" / "airplane").mkdir(parents=True)
    with pytest.raises(CellError) as caught:
        run_notebook(kernel, SMALL.format(data=str(images)))
    assert f"There is no CINIC-10 in {images}: its folder train is missing or has no images." in str(caught.value)


# The made-up images of a class have the same colours, so that features without a training find them, too.
@pytest.mark.skipif("FARANDOLE_DATA" not in os.environ, reason="needs images of CINIC-10")
@pytest.mark.outside
@pytest.mark.release
@pytest.mark.timeout(3600)
def test_detector_and_features_are_better_than_their_baselines(kernel: RemoteKernel, tmp_path: Path) -> None:
    images = str(cinic10(tmp_path))
    for seed in SEEDS:
        parameters = own_parameters(kernel, DATA=images, FOLDER="images-of-seeds", SEED=seed)
        shown = run_notebook(kernel, parameters)
        for rule in RULES:
            assert all(own > other for own, other in zip(shown.boxes["detector"], shown.boxes[rule], strict=True)), (
                shown
            )
        for features in OTHER_FEATURES:
            assert shown.precision["network"] > shown.precision[features], shown
