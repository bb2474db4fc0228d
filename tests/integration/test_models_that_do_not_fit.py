"""Runs the notebook that trains a GPT on meshes on a real hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.models_that_do_not_fit import NOTEBOOK, assert_compared, run_notebook

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.clients.kernel import RemoteKernel


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [(1, 2), pytest.param((1, 2, 4), marks=pytest.mark.release)], ids=str)
def test_the_notebook_trains_in_each_mode_with_the_same_losses(
    open_notebook: Callable[[Path], RemoteKernel], ranks: tuple[int, ...]
) -> None:
    assert_compared(run_notebook(open_notebook(NOTEBOOK), ranks), ranks)
