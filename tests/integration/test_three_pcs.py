"""Runs the notebook on slow networks on a real hub, with small sizes in place of its cell of parameters."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spawner_config.settings import ROOT
from tests.clients.kernel import CellError, RemoteKernel
from tests.data import cinic10

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hub import RunningHub

NOTEBOOK = ROOT / "notebooks" / "02-three-pcs.ipynb"
CELL_SECONDS = 300.0
SMALL = """
DATA = {data!r}
IMAGES_PER_CLASS = 20
EPOCHS = 1
BATCH_SIZE = 20
LEARNING_RATE = 0.01
WIDTH = 4
MACHINES = [1, 2]
BACKEND = {backend!r}
"""


@pytest.fixture(scope="module")
def address(hub: RunningHub) -> str:
    """Start a notebook server, and return its address."""
    return hub.start_notebook("turing")


@pytest.fixture
def kernel(hub: RunningHub, address: str) -> Iterator[RemoteKernel]:
    shutil.copy(NOTEBOOK, hub.state / "homes" / "turing")
    with RemoteKernel(address, hub.browser("turing").make_token(), NOTEBOOK.name) as kernel:
        yield kernel


def run(kernel: RemoteKernel, **parameters: str) -> dict[str, str]:
    """Run the notebook, and return the output of each cell by its tag or its first line."""
    outputs = {}
    for cell in kernel.code_cells():
        source = SMALL.format(**parameters) if "parameters" in cell.tags else cell.source
        outputs[next(iter(cell.tags), source.splitlines()[0])] = kernel.execute(source, deadline=CELL_SECONDS)
    return outputs


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["torch", pytest.param("horovod", marks=pytest.mark.release)])
def test_the_notebook_trains_in_each_mode_and_compares(kernel: RemoteKernel, tmp_path: Path, backend: str) -> None:
    outputs = run(kernel, data=str(cinic10(tmp_path)), backend=backend)
    rows = re.findall(r"(\d)\s+(\w+)\s+([\d.]+)\s+([\d.]+)\s+(0\.\d+)", outputs["result"])
    assert [row[:2] for row in rows] == [
        ("1", "step"),
        ("2", "asynchronous"),
        ("2", "auto"),
        ("2", "local"),
        ("2", "step"),
    ]
    [check] = [text for line, text in outputs.items() if line.startswith("%cluster check")]
    assert 'sync="step"' in check
    assert "(auto)" in check
    assert "cluster 'main' is stopped" in outputs["%cluster stop"]


@pytest.mark.timeout(600)
def test_without_the_images_the_notebook_says_where_to_get_them(kernel: RemoteKernel, tmp_path: Path) -> None:
    with pytest.raises(CellError, match=r"There is no folder .*none/train\. CINIC-10 is at https://"):
        run(kernel, data=str(tmp_path / "none"), backend="torch")
    kernel.execute("%cluster stop", deadline=CELL_SECONDS)
