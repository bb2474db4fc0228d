"""Runs the notebook that predicts rain on a real hub."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.clients.kernel import CellError, RemoteKernel
from tests.data import radar
from tests.notebooks import own_parameters
from tests.nowcasting import AHEAD, NOTEBOOK, PAST, PICTURE, SMALL, assert_reported, run_notebook

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST_BYTES = 1_000_000


@pytest.fixture
def kernel(open_notebook: Callable[[Path], RemoteKernel]) -> RemoteKernel:
    return open_notebook(NOTEBOOK)


def assert_moves(home: Path) -> None:
    """Check that the notebook has written a moving picture, which is small enough for a notebook file."""
    picture = home / PICTURE
    with Image.open(picture) as opened:
        assert opened.n_frames == PAST + AHEAD
    assert picture.stat().st_size < MOST_BYTES


@pytest.mark.timeout(600)
def test_the_notebook_predicts_rain_and_shows_its_errors_and_a_moving_picture(
    notebook_home: Path, kernel: RemoteKernel, tmp_path: Path
) -> None:
    data = radar(tmp_path)
    assert_reported(run_notebook(kernel, SMALL.format(data=str(data))), data)
    assert_moves(notebook_home)


@pytest.mark.timeout(300)
def test_without_the_images_the_notebook_names_the_parameter(kernel: RemoteKernel, tmp_path: Path) -> None:
    missing = tmp_path / "none.npz"
    with pytest.raises(CellError, match=f"There are no radar images in {missing}; put the file there, or change DATA"):
        run_notebook(kernel, SMALL.format(data=str(missing)))


# The images are those of one event, so their errors are shown, but prove nothing about a network.
@pytest.mark.skipif("FARANDOLE_DATA" not in os.environ, reason="needs the radar images of radar-mrms")
@pytest.mark.outside
@pytest.mark.release
@pytest.mark.timeout(1800)
def test_the_notebook_predicts_rain_of_real_radar_images(
    notebook_home: Path, kernel: RemoteKernel, tmp_path: Path
) -> None:
    data = radar(tmp_path)
    assert_reported(run_notebook(kernel, own_parameters(kernel, DATA=str(data))), data)
    assert_moves(notebook_home)
