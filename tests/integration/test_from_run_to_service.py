"""Runs the notebook from a run to a service on a real hub."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.clients.kernel import RemoteKernel
from tests.typhoons import BASELINES, CELL_SECONDS, NOTEBOOK, SMALL, VERSIONS, assert_served, run_notebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hub import RunningHub

USER = "lorenz"
EARLIER = """
import torch, farandole as fd
fd.save_model(torch.nn.Linear(1, 1), "typhoon")
"""
"""A cell that saves a version which cannot be served, so that the notebook has to serve the versions that it saves."""


@pytest.fixture(scope="module")
def address(hub: RunningHub) -> str:
    """Start a notebook server, and return its address."""
    return hub.start_notebook(USER)


@pytest.fixture
def kernel(hub: RunningHub, address: str) -> Iterator[RemoteKernel]:
    shutil.copy(NOTEBOOK, hub.state / "homes" / USER)
    with RemoteKernel(address, hub.browser(USER).make_token(), NOTEBOOK.name) as kernel:
        yield kernel


@pytest.mark.timeout(900)
def test_the_notebook_replaces_a_served_model_while_it_is_called(kernel: RemoteKernel) -> None:
    kernel.execute(EARLIER, deadline=CELL_SECONDS)
    assert_served(run_notebook(kernel, SMALL))


@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
def test_both_versions_are_better_than_the_baselines_on_later_seasons(kernel: RemoteKernel, seed: int) -> None:
    [parameters] = [cell.source for cell in kernel.code_cells() if "parameters" in cell.tags]
    assert "SEED = 0" in parameters
    shown = run_notebook(kernel, parameters.replace("SEED = 0", f"SEED = {seed}"))
    assert_served(shown)
    for version in VERSIONS:
        for baseline in BASELINES:
            assert all(own < other for own, other in zip(shown.errors[version], shown.errors[baseline], strict=True))
