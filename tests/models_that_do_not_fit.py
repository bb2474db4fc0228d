"""Runs the notebook that trains a GPT on meshes with small sizes, as a user would in JupyterLab."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spawner_config.settings import ROOT
from tests.notebooks import run_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.kernel import RemoteKernel

NOTEBOOK = ROOT / "notebooks" / "07-models-that-do-not-fit.ipynb"
CELL_SECONDS = 300.0
WRITTEN, CONTEXT = 5, 8
SMALL = f"""
RANKS = {{ranks!r}}
LAYERS = 4
WIDTH = 16
HEADS = 4
CONTEXT = {CONTEXT}
PASSAGES = 128
BATCH_SIZE = 16
EPOCHS = 1
LEARNING_RATE = 1e-2
WRITTEN = {WRITTEN}
SEED = 0
"""
MODES = ("data", "pipeline", "shard", "tensor")
LARGEST_DIFFERENCE = 1e-4
"""Of the losses of a step in two modes."""
FAIR = 1.15
"""The largest share of a rank in mode `shard`, as a multiple of an equal share."""


def run_notebook(kernel: RemoteKernel, ranks: Sequence[int]) -> dict[str, str]:
    """Run the notebook with these numbers of ranks, and return the output of each cell by its tag or its first line."""
    outputs = run_cells(kernel, SMALL.format(ranks=list(ranks)), deadline=CELL_SECONDS)
    assert "cluster 'main' is stopped" in outputs["%cluster stop"]
    return outputs


def assert_compared(outputs: dict[str, str], ranks: Sequence[int]) -> None:
    """Check that all modes have the same losses, and how they share the memory."""
    [difference] = re.findall(r"differ by at most (\S+)", outputs["losses"])
    assert float(difference) <= LARGEST_DIFFERENCE
    memory = bytes_of_ranks(outputs["memory"])
    [whole] = memory["data", 1]
    assert set(memory) == {("data", 1), *((mode, size) for mode in MODES for size in ranks if size > 1)}
    for (mode, size), found in memory.items():
        assert len(found) == size
        if mode == "data":
            assert found == [whole] * size
        elif mode == "shard":
            assert max(found) <= FAIR * whole / size
        else:
            assert max(found) < 0.8 * whole
    texts = re.split(r"--- (\w+), \d ranks ---\n", outputs["text"])
    assert texts[1::2] == list(MODES)
    assert {len(text.removesuffix("\n\n")) for text in texts[2::2]} == {CONTEXT + WRITTEN}


def bytes_of_ranks(table: str) -> dict[tuple[str, int], list[int]]:
    """Return the bytes of each rank in each mode with each number of ranks, from the table of the notebook."""
    found: dict[tuple[str, int], list[int]] = {}
    for mode, size, numbers in re.findall(r"^(\w+), rank \d+ of (\d+)((?:\s+\d+){3})$", table, re.MULTILINE):
        found.setdefault((mode, int(size)), []).append(sum(map(int, numbers.split())))
    return found
