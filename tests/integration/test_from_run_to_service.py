"""Runs the notebook from a run to a service on a real hub."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
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

EXACT = """
import json
print(json.dumps([list(map(float, run.result["km"])) for run in (first, second)]))
"""
"""A cell that prints the errors of both versions. The table of the notebook rounds them."""
SEEDS = range(5)


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
@pytest.mark.timeout(3600)
def test_both_versions_are_better_than_the_baselines_and_the_second_is_the_best(kernel: RemoteKernel) -> None:
    [parameters] = [cell.source for cell in kernel.code_cells() if "parameters" in cell.tags]
    assert "SEED = 0" in parameters
    errors = []
    for seed in SEEDS:
        shown = run_notebook(kernel, parameters.replace("SEED = 0", f"SEED = {seed}"))
        assert_served(shown)
        for version in VERSIONS:
            for baseline in BASELINES:
                assert all(
                    own < other for own, other in zip(shown.errors[version], shown.errors[baseline], strict=True)
                )
        errors.append(json.loads(kernel.execute(EXACT, deadline=CELL_SECONDS)))
    first, second = np.mean(errors, axis=0)
    assert (second < first).all(), errors
