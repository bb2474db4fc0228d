"""Tests that progress bars of ranks move in JupyterLab, and that a page with a dashboard gets no lines of progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from hub.process import wait_until
from tests.browser.lab import write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

START = "%load_ext farandole\n%cluster start --local --ranks 2 --backend none"
SOON = "from farandole.notebook import progress\nprogress.FIRST_SECONDS = 3.0"
TRAIN = """\
%%distributed_train
import time
from tqdm import tqdm

for batch in tqdm(range(100), desc="batches"):
    time.sleep(0.1)
print("after")
"""
NOTEBOOK = """\
%%distributed --ranks 0
import time
from IPython.display import HTML, clear_output, display
from tqdm.notebook import tqdm

table = display(HTML("<table><tr><td>row 0</td></tr></table>"), display_id=True)
for row in tqdm(range(1, 31), desc="rows"):
    table.update(HTML(f"<table><tr><td>row {row}</td></tr></table>"))
    time.sleep(0.1)
"""


def text_of(cell: Locator, words: str) -> str:
    """Return the text of the cell's first output that contains these words, or an empty string."""
    output = cell.locator(".jp-OutputArea-output", has_text=words).first
    return output.inner_text() if output.count() else ""


@pytest.mark.timeout(240)
def test_bars_and_tables_of_ranks_move_in_place(hub: RunningHub, lab: Lab):
    home = hub.state / "homes" / "hopper"
    home.mkdir(parents=True, exist_ok=True)
    write_notebook(home / "bars.ipynb", START, SOON, TRAIN, NOTEBOOK)
    lab.log_in("hopper")
    lab.start_server("hopper", "lean")
    lab.open_notebook("hopper", "bars.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    lab.run_cell(1)

    cell = lab.run_cell(2)
    wait_until(lambda: "rank 1  batches:" in text_of(cell, "rank 0  batches:"), 60)
    before = text_of(cell, "rank 0  batches:")
    wait_until(lambda: text_of(cell, "rank 0  batches:") not in (before, ""), 10)
    lab.shoot("bars")
    expect(cell.locator(".fd-status")).to_have_text("finished", timeout=60_000)
    wait_until(lambda: "after" in text_of(cell, "ranks 0-1"), 10)
    # If the last frames of both ranks have the same text, they are one output.
    assert cell.inner_text().count("batches: 100%") in {1, 2}
    assert "batches:  5" not in cell.inner_text()
    assert "· running ·" not in cell.inner_text(), "the page shows the dashboard, and lines of progress too"

    cell = lab.run_cell(3)
    wait_until(lambda: "rows: 100%|██████████| 30/30" in cell.inner_text(), 30)
    wait_until(lambda: "row 30" in cell.inner_text(), 10)
    assert cell.locator("table").count() == 1
    lab.shoot("tables")
