"""Tests the path of a newcomer, who types no magic: from the login to the better of two runs and its notebook."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import open_panel, show_tab
from tests.browser.test_runs_page import PAGE, names, sort

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.lab import Lab

GOOD, POOR = "0.003", "0.0001"
"""The learning rate of the inserted cell, and one that is so low that the loss stays higher."""


def start_cluster(panel: Locator) -> None:
    """Start a cluster with the panel's form, as it is filled in, and wait until it is ready."""
    panel.get_by_role("button", name="Start a cluster").click()
    panel.get_by_role("form", name="Start a cluster").get_by_role("button", name="Start", exact=True).click()
    cluster = panel.get_by_role("region", name="Cluster main")
    expect(cluster).to_contain_text("2 workers", timeout=90_000)
    expect(cluster.locator(".fd-status").first).to_have_text("ready", timeout=90_000)


def insert_training_cell(lab: Lab, panel: Locator) -> Locator:
    """Insert the training cell with the panel's button, and return it."""
    panel.get_by_role("button", name="Insert training cell").click()
    training = lab.cell(1)
    expect(training).to_contain_text("%%distributed_train")
    return training


def train_twice(lab: Lab, panel: Locator, training: Locator) -> None:
    """Run the inserted cells, change the learning rate in the training cell, and run this cell again."""
    show_tab(panel, "Runs")
    lab.run_all()
    expect(training.locator(".fd-status")).to_have_text("finished", timeout=120_000)
    lab.retype(training, GOOD, POOR)
    lab.run_cell(1)
    finished = panel.get_by_role("list", name="Runs").locator('.fd-status[data-status="finished"]')
    expect(finished).to_have_count(2, timeout=120_000)


def rates(page: Locator) -> Locator:
    """Return the cells of the table that show the learning rates, in the order of the table."""
    heads = page.get_by_role("columnheader")
    expect(heads.filter(has_text=re.compile("^lr$"))).to_have_count(1)
    place = [text.strip() for text in heads.all_inner_texts()].index("lr")
    # The checkbox of a row has no header.
    return page.locator(f"tbody tr[aria-rowindex] > :nth-child({place + 2})")


def read_the_difference(page: Locator) -> None:
    """Compare both runs: of their hyper-parameters only the learning rate differs, and so does one line of code."""
    for box in page.locator("tbody").get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare (2)").click()
    expect(page.locator(".fd-chart", has_text="loss").locator(".fd-legend .fd-key")).to_have_count(2)
    parameters = page.get_by_role("region", name="Hyper-parameters")
    expect(parameters.locator("tr[data-differs]")).to_have_count(1)
    expect(parameters.locator("tr[data-differs]").get_by_role("cell")).to_have_text([GOOD, POOR])
    expect(parameters.get_by_role("row", name="batch")).to_contain_text("the same")
    code = page.get_by_role("region", name="Code")
    expect(code.locator("del")).to_have_text([re.compile(f"lr={GOOD}")])
    expect(code.locator("ins")).to_have_text([re.compile(f"lr={POOR}")])


@pytest.mark.release
@pytest.mark.timeout(400)
def test_a_newcomer_finds_the_better_of_two_runs_and_its_notebook_without_a_magic(lab: Lab):
    lab.log_in("somerville")
    lab.start_server("somerville", "lean")
    lab.new_notebook()
    panel = open_panel(lab)
    start_cluster(panel)
    training = insert_training_cell(lab, panel)
    train_twice(lab, panel, training)

    panel.get_by_role("button", name="All runs").click()
    page = lab.page.locator(PAGE)
    expect(names(page)).to_have_text(["digits", "digits"])
    expect(rates(page)).to_have_text([POOR, GOOD])
    sort(page, "loss, lowest", "ascending")
    expect(rates(page)).to_have_text([GOOD, POOR])
    lab.shoot("newcomer-sorted")
    read_the_difference(page)
    lab.shoot("newcomer-difference")

    page.get_by_role("button", name="All runs").click()
    expect(rates(page)).to_have_text([GOOD, POOR])
    expect(training).to_be_hidden()
    page.get_by_role("button", name="Open the notebook of digits").first.click()
    expect(training).to_be_visible()
    expect(training).to_contain_text("%%distributed_train")
