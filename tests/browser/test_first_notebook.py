"""Tests a user's complete path: log in at the hub, train, watch the run, reload the page, and stop."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from farandole.notebook.display import RUN_TYPE
from playwright.sync_api import expect

from hub.process import wait_until
from hub.up import NOTEBOOK
from tests.browser.lab import Lab, points, show, wait_for_points, write_notebook

if TYPE_CHECKING:
    from tests.hub import RunningHub

SLOW_CELL = """\
%%distributed_train --name slow
import math, time
import farandole as fd

for step in fd.track(range(1200), name="steps"):
    time.sleep(0.25)
    fd.report(step=step, loss=math.exp(-step / 100) * (1 + 0.1 * fd.rank()))
"""


def test_the_first_notebook_from_login_to_accuracy(lab: Lab):
    lab.log_in("ada")
    lab.start_server("ada", "cpu")
    lab.open_notebook("ada", NOTEBOOK)
    lab.shoot("notebook")
    lab.run_all()

    training = lab.cell_with("--name first-cnn")
    training.locator(".fd-status").wait_for()
    wait_for_points(training, "loss", 5)
    grown = points(training, "loss") + 20
    wait_for_points(training, "loss", grown)
    wait_for_points(training, "accuracy", 6)
    show(training.locator(".fd"))
    lab.shoot("dashboard")
    expect(training.locator(".fd-status")).to_have_text("finished", timeout=90_000)
    expect(training.locator(".fd-chart", has_text="accuracy")).to_have_count(1)
    expect(training.locator("img")).to_have_count(0)

    expect(lab.cell_with("%cluster stop")).to_contain_text("cluster 'main' is stopped", timeout=150_000)
    results = lab.cell_with("results = pd.DataFrame").locator(".jp-OutputArea")
    results.scroll_into_view_if_needed()
    lab.shoot("results")
    accuracies = re.findall(r"(?:horovod|torch) +2 +([01]\.\d+)", results.inner_text())
    assert len(accuracies) == 3
    assert all(float(accuracy) >= 0.95 for accuracy in accuracies)


@pytest.mark.release
@pytest.mark.timeout(420)
def test_a_run_survives_a_reload_and_is_stopped(hub: RunningHub, lab: Lab):
    home = hub.state / "homes" / "grace"
    home.mkdir(parents=True, exist_ok=True)
    saved = home / "slow.ipynb"
    again = '%%distributed\nprint("and on it", "goes")'
    write_notebook(saved, "%load_ext farandole\n%cluster start --workers 2", SLOW_CELL, again)
    lab.log_in("grace")
    lab.start_server("grace", "lean")
    lab.open_notebook("grace", saved.name)
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    wait_for_points(lab.run_cell(1), "loss", 10)
    # JupyterLab saves less often if saving takes long.
    wait_until(lambda: RUN_TYPE in saved.read_text(encoding="utf-8"), 120)

    lab.page.reload()
    slow = lab.cell(1)
    wait_for_points(slow, "loss", 10)
    expect(slow.locator(".fd-status")).to_have_text("running")
    wait_for_points(slow, "loss", points(slow, "loss") + 5)
    lab.shoot("reloaded")

    slow.get_by_role("button", name="Stop").click()
    expect(slow.locator(".fd-status")).to_have_text("interrupted", timeout=10_000)
    lab.shoot("stopped")
    expect(lab.run_cell(2).locator(".jp-OutputArea")).to_contain_text("and on it goes", timeout=30_000)
    lab.shoot("next-cell")
