"""Runs the notebook from a run to a service on a real hub."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.clients.kernel import RemoteKernel
from tests.registry import BASE, push_serving_image, running_registry
from tests.typhoons import (
    BASELINES,
    CELL_SECONDS,
    NOTEBOOK,
    SAME_KM,
    SMALL,
    VERSIONS,
    assert_replayed,
    assert_served,
    run_notebook,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
BATCH = """
import torch
model, last = fd.load_model(saved), season.season.max()
with torch.inference_mode():
    batch = model(torch.tensor([record["tracks"] for record in records])).numpy()
    x, moved = examples(tracks, (last, last))
    evaluated = errors(model(torch.tensor(x)).numpy(), moved)[1]
streamed = np.array([one["output"] for one in predictions])
print(json.dumps([float(np.abs(streamed - batch).max()), float(table_of(predictions).km.mean() - evaluated)]))
"""
"""A cell that prints how the predictions of the stream, and their mean error, differ from those of the model."""
SEEDS = range(5)


@pytest.fixture
def kernel(open_notebook: Callable[[Path], RemoteKernel]) -> RemoteKernel:
    return open_notebook(NOTEBOOK)


@pytest.mark.timeout(900)
def test_the_notebook_replaces_a_served_model_writes_an_image_and_replays_a_season(
    kernel: RemoteKernel, tmp_path: Path
) -> None:
    kernel.execute(EARLIER, deadline=CELL_SECONDS)
    with running_registry(tmp_path / "registry") as registry:
        base = registry.reference(BASE)
        push_serving_image(base)
        shown = run_notebook(kernel, SMALL.replace('SERVING_IMAGE = ""', f'SERVING_IMAGE = "{base}"'))
    assert_served(shown)
    assert "typhoon:3 is in typhoon-3.tar" in shown.image
    assert_replayed(shown)
    assert_as_evaluated(kernel)


def assert_as_evaluated(kernel: RemoteKernel) -> None:
    """Check that the stream has the predictions and the error of the model, when it is evaluated as in the training."""
    differences = json.loads(kernel.execute(BATCH, deadline=CELL_SECONDS))
    assert np.abs(differences).max() < SAME_KM


@pytest.mark.release
@pytest.mark.timeout(3600)
def test_both_versions_are_better_than_the_baselines_and_the_second_is_the_best(kernel: RemoteKernel) -> None:
    [parameters] = [cell.source for cell in kernel.code_cells() if "parameters" in cell.tags]
    assert "SEED = 0" in parameters
    errors = []
    for seed in SEEDS:
        shown = run_notebook(kernel, parameters.replace("SEED = 0", f"SEED = {seed}"))
        assert_served(shown)
        assert "No image was made: the serving image is not known" in shown.image
        assert_replayed(shown)
        assert_as_evaluated(kernel)
        for version in VERSIONS:
            for baseline in BASELINES:
                assert all(
                    own < other for own, other in zip(shown.errors[version], shown.errors[baseline], strict=True)
                )
        errors.append(json.loads(kernel.execute(EXACT, deadline=CELL_SECONDS)))
    first, second = np.mean(errors, axis=0)
    assert (second < first).all(), errors
