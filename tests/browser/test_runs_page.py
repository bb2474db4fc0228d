"""Tests the page of runs: a user finds the better of two runs, reads how they differ, and changes and deletes runs.

The test writes the runs itself, which takes less time than training. test_newcomer.py opens the page after a training.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from farandole.protocol import Kind, Report, Status, report_to_json
from farandole.runs.origin import Origin
from farandole.runs.store import RunStore
from playwright.sync_api import expect

from tests.browser.lab import DESKTOP, PHONE, THEMES, assert_no_faults, choose_theme, write_notebook
from tests.browser.test_reattach import home_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Locator, Response

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

NOTEBOOK = "rates.ipynb"
CODE = """\
import farandole as fd

lr = fd.config(lr=0.01)["lr"]
weight = {weight}
for step in range(20):
    weight -= lr * weight
    fd.report(step=step, loss=weight**2)
"""
PAGE = "#farandole-runs"

BEYOND = """page => [...page.querySelectorAll(".fd-page-content > *")]
    .filter((part) => part.getBoundingClientRect().right > page.getBoundingClientRect().right + 1)
    .map((part) => part.outerHTML.slice(0, 200))"""
"""JavaScript that returns the parts of the page beyond its right edge."""


def open_page(lab: Lab) -> Locator:
    """Open the page of runs from the command palette, and return it."""
    lab.page.keyboard.press("Control+Shift+C")
    lab.page.locator(".lm-CommandPalette-input").fill("Farandole Runs")
    lab.page.locator(".lm-CommandPalette-item", has_text="Farandole Runs").first.click()
    page = lab.page.locator(PAGE)
    expect(page).to_be_visible()
    return page


def write_run(home: Path, cell: int, lr: float, weight: float) -> None:
    """Write the run of a cell with `CODE` into a home, as a cluster with one rank writes it."""
    run = RunStore(home / "farandole" / "runs").create(
        code=CODE.format(weight=weight),
        backend="none",
        size=1,
        workers=["main-w0"],
        name=f"rate-{lr}",
        versions={"python": "3.11.2"},
        origin=Origin(notebook=str(home / NOTEBOOK), cell=f"cell-{cell}"),
    )
    run.add_records(0, {"kind": Kind.CONFIG, "rank": 0, "time": run.started, "values": {"lr": lr}})
    for step in range(20):
        weight -= lr * weight
        report = Report(rank=0, time=run.started + step / 10, step=step, values={"loss": weight**2})
        run.add_records(0, report_to_json(report))
    run.add_log(0, "trained\n")
    run.finish(Status.FINISHED)


def write_runs(home: Path) -> None:
    """Write a notebook with two cells, and the run of each. The second run is newer, and better."""
    cells = [f"%%distributed_train\n{CODE.format(weight=weight)}" for weight in (1.0, 2.0)]
    write_notebook(home / NOTEBOOK, *cells)
    write_run(home, 0, lr=0.01, weight=1.0)
    write_run(home, 1, lr=0.5, weight=2.0)


def names(page: Locator) -> Locator:
    return page.locator("tbody [data-run]")


def sort(page: Locator, column: str, order: str) -> None:
    """Click the header of a column, and check the order by which the table is then sorted."""
    header = page.get_by_role("columnheader", name=column, exact=True)
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", order)


def assert_accessible(lab: Lab, name: str) -> None:
    """Check and save the page in both themes."""
    for theme in THEMES:
        choose_theme(lab, theme)
        assert_no_faults(lab, PAGE)
        lab.shoot(f"runs-page-{name}-{theme.split()[-1].lower()}")


def edit(page: Locator, label: str, text: str) -> None:
    """Change a text in the table with the keyboard."""
    page.get_by_role("button", name=f"Edit: {label}").click()
    field = page.get_by_role("textbox", name=label)
    expect(field).to_be_focused()
    field.fill(text)
    field.press("Enter")
    expect(field).to_have_count(0)


def saves(*texts: str) -> Callable[[Response], bool]:
    """Return whether a response is that to a request with which JupyterLab has saved a workspace with these texts.

    JupyterLab saves the workspace a second after a change.
    """

    def matches(response: Response) -> bool:
        content = response.request.post_data or ""
        return "/lab/api/workspaces/" in response.url and all(text in content for text in texts)

    return matches


def compare_both(lab: Lab, page: Locator) -> None:
    """Read in the comparison of both runs that their learning rates and their code differ."""
    for box in page.locator("tbody").get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare (2)").click()
    expect(page.locator(".fd-chart", has_text="loss").locator(".fd-legend .fd-key")).to_have_count(2)
    rates = page.get_by_role("region", name="Hyper-parameters").get_by_role("row", name="lr")
    expect(rates.get_by_role("cell")).to_have_text(["0.5", "0.01"])
    code = page.get_by_role("region", name="Code")
    expect(code.locator("del")).to_have_text(["weight = 2.0"])
    expect(code.locator("ins")).to_have_text(["weight = 1.0"])
    expect(page.get_by_role("region", name="Versions")).to_contain_text("the same")
    assert_accessible(lab, "compare")
    page.get_by_role("button", name="All runs").click()


@pytest.mark.timeout(400)
def test_the_better_run_is_found_compared_and_described(hub: RunningHub, lab: Lab):
    write_runs(home_of(hub, "sklodowska"))
    lab.log_in("sklodowska")
    lab.start_server("sklodowska", "lean")
    lab.page.locator(".jp-LauncherCard", has_text="Farandole: distributed training").wait_for()

    page = open_page(lab)
    expect(names(page)).to_have_text(["rate-0.5", "rate-0.01"])
    sort(page, "loss, lowest", "ascending")
    expect(names(page)).to_have_text(["rate-0.5", "rate-0.01"])
    sort(page, "loss, lowest", "descending")
    expect(names(page)).to_have_text(["rate-0.01", "rate-0.5"])
    sort(page, "lr", "ascending")
    expect(names(page)).to_have_text(["rate-0.01", "rate-0.5"])
    sort(page, "lr", "descending")
    expect(names(page)).to_have_text(["rate-0.5", "rate-0.01"])
    assert_accessible(lab, "table")
    compare_both(lab, page)

    edit(page, "Tags of rate-0.5, separated by commas", "paper, best")
    edit(page, "Notes of rate-0.5", "<b>converges</b>")
    edit(page, "Name of rate-0.5", "fast")
    row = page.get_by_role("row", name=re.compile("fast"))
    for text in ("paper", "best", "<b>converges</b>"):
        expect(row).to_contain_text(text)
    page.get_by_role("combobox", name="Filter by tag").select_option("best")
    expect(names(page)).to_have_text(["fast"])
    page.get_by_role("combobox", name="Filter by tag").select_option("")

    names(page).first.click()
    expect(page.get_by_role("heading", name="fast")).to_be_visible()
    assert_accessible(lab, "run")
    page.get_by_role("button", name="All runs").click()
    page.locator("summary", has_text="Columns").click()
    with lab.page.expect_response(saves("farandole:columns")):
        page.get_by_role("checkbox", name="Ranks").uncheck()
    page.locator("summary", has_text="Columns").press("Escape")
    expect(page.get_by_role("columnheader", name="Ranks")).to_have_count(0)

    page.get_by_role("combobox", name="Filter by tag").select_option("best")
    sort(page, "loss, lowest", "ascending")
    with lab.page.expect_response(saves('"tag":"best"', '"column":"series.loss.lowest","descending":true')):
        sort(page, "loss, lowest", "descending")

    lab.page.reload()
    page = lab.page.locator(PAGE)
    expect(page.get_by_role("status")).to_have_text("1 run matches the filters", timeout=60_000)
    expect(names(page)).to_have_text(["fast"])
    expect(page.get_by_role("combobox", name="Filter by tag")).to_have_value("best")
    expect(page.get_by_role("columnheader", name="Ranks")).to_have_count(0)
    assert_no_faults(lab, PAGE)
    lab.shoot("runs-page-filtered")
    page.get_by_role("button", name="Clear filters").click()
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(names(page)).to_have_text(["rate-0.01", "fast"])
    expect(page.get_by_role("button", name="Clear filters")).to_have_count(0)
    header = page.get_by_role("columnheader", name="loss, lowest", exact=True)
    expect(header).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Delete rate-0.01").click()
    dialog = lab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("rate-0.01")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    dialog.get_by_role("button", name="Delete").click()
    expect(names(page)).to_have_text(["fast"])

    lab.page.set_viewport_size(PHONE)
    lab.shoot("runs-page-phone")
    assert page.evaluate(BEYOND) == []
    lab.page.set_viewport_size(DESKTOP)
    page.get_by_role("button", name="Open the notebook of fast").click()
    expect(lab.cell(1)).to_be_visible()
    expect(lab.cell(1)).to_have_class(re.compile("jp-mod-active"))
