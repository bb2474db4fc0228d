"""Tests that progress bars of ranks move in JupyterLab, and that a run is shown once, also on the next day."""

from __future__ import annotations

import csv
import json
import shutil
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from farandole.notebook.display import RUN_TYPE
from nbconvert import HTMLExporter
from playwright.sync_api import expect

from hub.process import wait_until
from tests.browser.lab import points, wait_for_points, write_notebook

if TYPE_CHECKING:
    from pathlib import Path

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
REPORT = """\
%%distributed_train --name kept
import time
import farandole as fd

for step in range(40):
    time.sleep(0.3)
    fd.report(step=step, loss=1 / (step + 1))
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
    wait_until(lambda: text_of(cell, "rank 0  batches:") not in (before, ""), 30)
    lab.shoot("bars")
    expect(cell.locator(".fd-status")).to_have_text("finished", timeout=60_000)
    wait_until(lambda: "after" in text_of(cell, "ranks 0-1"), 30)
    # If the last frames of both ranks have the same text, they are one output.
    assert cell.inner_text().count("batches: 100%") in {1, 2}
    assert "batches:  5" not in cell.inner_text()
    assert "· running ·" not in cell.inner_text(), "the page shows the dashboard, and lines of progress too"

    cell = lab.run_cell(3)
    wait_until(lambda: "rows: 100%|██████████| 30/30" in cell.inner_text(), 30)
    wait_until(lambda: "row 30" in cell.inner_text(), 30)
    assert cell.locator("table").count() == 1
    lab.shoot("tables")


def outputs_of(notebook: Path, index: int) -> list[dict[str, Any]]:
    """Return the data of the displays below a cell of a saved notebook, or nothing while the server writes the file."""
    try:
        cell = json.loads(notebook.read_text(encoding="utf-8"))["cells"][index]
    except json.JSONDecodeError:
        return []
    return [output["data"] for output in cell["outputs"] if "data" in output]


def download(chart: Locator, series: str, format_name: str) -> bytes:
    """Download a chart in a format from its menu, and return the content of the file."""
    chart.get_by_label(f"Download the chart of {series}").click()
    with chart.page.expect_download() as started:
        chart.get_by_role("button", name=format_name, exact=True).click()
    assert started.value.suggested_filename == f"{series}.{format_name.lower()}"
    return started.value.path().read_bytes()


def assert_chart_is_downloaded(cell: Locator) -> None:
    """Check the files of the chart of 40 losses: a picture in both formats, and the values."""
    chart = cell.locator(".fd-chart", has_text="loss")
    png = download(chart, "loss", "PNG")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(png) > 2000
    svg = ET.fromstring(download(chart, "loss", "SVG"))
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert "loss" in [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    rows = list(csv.reader(download(chart, "loss", "CSV").decode().splitlines()))
    assert rows[0] == ["line", "step", "value", "low", "high"]
    assert [(int(step), float(value)) for _, step, value, *_ in rows[1:]] == [
        (step, pytest.approx(1 / (step + 1), rel=1e-4)) for step in range(40)
    ]
    expect(chart.get_by_role("alert")).to_have_count(0)


def stop_server(hub: RunningHub, user: str) -> None:
    """Stop the user's notebook server, with all kernels."""
    token = hub.token_for(user, ["self"])
    wait_until(lambda: hub.api(token, "DELETE", f"/hub/api/users/{user}/server").status_code == 204, 60)


@pytest.mark.release
@pytest.mark.timeout(420)
def test_a_notebook_of_yesterday_shows_its_run_once_and_without_an_error(hub: RunningHub, lab: Lab):
    home = hub.state / "homes" / "hamilton"
    home.mkdir(parents=True, exist_ok=True)
    saved = home / "kept.ipynb"
    write_notebook(saved, START, REPORT)
    lab.log_in("hamilton")
    lab.start_server("hamilton", "lean")
    lab.open_notebook("hamilton", saved.name)
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    cell = lab.run_cell(1)
    expect(cell.locator(".fd-status")).to_have_text("running", timeout=30_000)
    wait_for_points(cell, "loss", 3)
    expect(cell.locator(".fd-status")).to_have_text("finished", timeout=60_000)
    wait_until(lambda: points(cell, "loss") == 40, 30)
    assert_chart_is_downloaded(cell)
    expect(cell.locator(".fd-chart, img")).to_have_count(1)
    outputs: list[dict[str, Any]] = []

    def is_saved() -> bool:
        outputs[:] = outputs_of(saved, 1)
        return "finished" in str(outputs)

    # JupyterLab saves less often if saving takes long.
    wait_until(is_saved, 120)
    [output] = outputs
    assert {RUN_TYPE, "image/svg+xml"} < set(output)

    stop_server(hub, "hamilton")
    lab.start_server("hamilton", "lean")
    lab.open_notebook("hamilton", saved.name)
    cell = lab.cell(1)
    expect(cell.locator(".fd-status")).to_have_text("finished", timeout=30_000)
    assert points(cell, "loss") == 40
    expect(cell.locator(".fd-chart")).to_have_count(1)
    expect(lab.page.get_by_text("Error displaying widget")).to_have_count(0)
    lab.shoot("kept-run")

    # The run is deleted, so only the picture is left, as it is on a page without a server.
    shutil.rmtree(home / "farandole" / "runs" / output[RUN_TYPE]["run"])
    lab.page.reload()
    picture = lab.cell(1).locator("img[alt*=loss]")
    expect(picture).to_be_visible(timeout=30_000)
    expect(lab.cell(1).locator(".fd-status")).to_have_count(0)
    lab.shoot("deleted-run")
    page, _ = HTMLExporter().from_filename(saved)
    assert page.count('alt="loss: last') == 1
    assert " object at 0x" not in page
