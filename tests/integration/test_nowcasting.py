"""Runs the notebook that predicts rain on a real hub."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.clients.kernel import CellError, RemoteKernel
from tests.data import radar
from tests.nowcasting import AHEAD, NOTEBOOK, PAST, PICTURE, assert_reported, run_notebook

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hub import RunningHub

USER = "huygens"
MOST_BYTES = 1_000_000


@pytest.fixture
def kernel(hub: RunningHub) -> Iterator[RemoteKernel]:
    address = hub.start_notebook(USER)
    shutil.copy(NOTEBOOK, hub.state / "homes" / USER)
    with RemoteKernel(address, hub.browser(USER).make_token(), NOTEBOOK.name) as kernel:
        yield kernel


@pytest.mark.timeout(600)
def test_the_notebook_predicts_rain_and_shows_its_errors_and_a_moving_picture(
    hub: RunningHub, kernel: RemoteKernel, tmp_path: Path
) -> None:
    data = radar(tmp_path)
    assert_reported(run_notebook(kernel, str(data)), data)
    picture = hub.state / "homes" / USER / PICTURE
    with Image.open(picture) as opened:
        assert opened.n_frames == PAST + AHEAD
    assert picture.stat().st_size < MOST_BYTES


@pytest.mark.timeout(300)
def test_without_the_images_the_notebook_names_the_parameter(kernel: RemoteKernel, tmp_path: Path) -> None:
    missing = tmp_path / "none.npz"
    with pytest.raises(CellError, match=f"There are no radar images in {missing}; put the file there, or change DATA"):
        run_notebook(kernel, str(missing))
