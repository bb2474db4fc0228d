"""Runs the notebook that builds a recommender, as a user would in JupyterLab."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spawner_config.settings import ROOT
from tests.notebooks import run_cells

if TYPE_CHECKING:
    from tests.clients.kernel import RemoteKernel

NOTEBOOK = ROOT / "notebooks" / "06-recommender.ipynb"
CELL_SECONDS = 600.0
SMALL = """
DATA = {data!r}
SIZE = 8
NEGATIVES = 4
EPOCHS = 2
BATCH_SIZE = 256
LEARNING_RATE = 1e-2
SEED = 0
WORKERS = 2
SHOWN = 3
"""
BASELINES = ("popularity", "item-kNN")
RECOMMENDER = "NCF"


def run_notebook(kernel: RemoteKernel, parameters: str) -> dict[str, str]:
    """Run the notebook with other parameters, and return the output of each cell by its tag or its first line."""
    outputs = run_cells(kernel, parameters, deadline=CELL_SECONDS)
    assert "cluster 'main' is stopped" in outputs["%cluster stop"]
    return outputs


def measures_of(outputs: dict[str, str]) -> dict[str, tuple[float, float]]:
    """Return HR@10 and NDCG@10 of the network and of its baselines, as the notebook shows them."""
    rows = re.findall(r"^([\w-]+)\s+([\d.]+)\s+([\d.]+)\s*$", outputs["result"], re.MULTILINE)
    return {name: (float(hit_rate), float(gain)) for name, hit_rate, gain in rows}


def assert_recommended(outputs: dict[str, str]) -> None:
    """Check that the notebook shows the measures of all recommenders, and recommendations for some users."""
    measures = measures_of(outputs)
    assert list(measures) == [*BASELINES, RECOMMENDER]
    assert all(0 < gain < hit_rate <= 1 for hit_rate, gain in measures.values())
    assert (
        len(re.findall(r"^User \d+ has visited:  \w.*\n  recommended:  \w", outputs["recommended"], re.MULTILINE)) == 3
    )
