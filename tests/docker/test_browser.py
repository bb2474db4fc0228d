"""Follow docs/how-to/containers.md in a real browser: log in, start a server and train."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from hub.up import NOTEBOOK
from tests.browser.lab import Lab, points, show, wait_for_points
from tests.browser.test_runs_page import open_page as open_runs_page
from tests.docker.remote_lab import administrators_lab
from tests.docker.stack import ADMIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

    from tests.docker.stack import Stack

DRAWN_SECONDS = 180
CELL_MILLISECONDS = 240_000
REST_MILLISECONDS = 480_000
"""Time limit in milliseconds for the cells after the first training. They train twice, which can take minutes."""


@pytest.fixture
def lab(stack: Stack, chromium: Browser) -> Iterator[Lab]:
    with administrators_lab(stack, chromium) as lab:
        yield lab


# tests/browser/test_first_notebook.py runs this notebook on a hub without containers.
@pytest.mark.release
def test_the_first_notebook_trains_over_two_worker_containers(stack: Stack, lab: Lab) -> None:
    stack.compose("up", "-d", "--wait")
    train_in_the_first_notebook(lab, lambda: len([name for name in stack.containers() if "--main-w" in name]))


def train_in_the_first_notebook(lab: Lab, places: Callable[[], int]) -> None:
    """Log in, start a server, run the first notebook and check its results.

    ``places`` returns the number of containers, pods or machines that the two workers use, and must return 2.
    """
    lab.log_in(ADMIN)
    lab.start_server(ADMIN, "cpu")
    lab.page.locator(".jp-DirListing-item", has_text=NOTEBOOK).dblclick()
    expect(lab.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=CELL_MILLISECONDS)
    lab.run_all()

    training = lab.cell_with("--name first-cnn")
    wait_for_points(training, "loss", 5, DRAWN_SECONDS)
    assert places() == 2
    wait_for_points(training, "loss", points(training, "loss") + 20, DRAWN_SECONDS)
    wait_for_points(training, "accuracy", 3, DRAWN_SECONDS)
    show(training.locator(".fd-chart").first)
    lab.shoot("containers-training")
    expect(training.locator(".fd-status")).to_have_text("finished", timeout=CELL_MILLISECONDS)

    expect(lab.cell_with("%cluster stop")).to_contain_text("cluster 'main' is stopped", timeout=REST_MILLISECONDS)
    results = lab.cell_with("results = pd.DataFrame").locator(".jp-OutputArea")
    show(results)
    lab.shoot("containers-results")
    accuracies = re.findall(r"(?:horovod|torch) +2 +([01]\.\d+)", results.inner_text())
    assert len(accuracies) == 3
    assert all(float(accuracy) >= 0.95 for accuracy in accuracies)

    page = open_runs_page(lab)
    row = page.get_by_role("row").filter(has_text="first-cnn").first
    for text in ("finished", re.compile(r"0\.9\d+"), re.compile(r"\d [KM]iB")):
        expect(row).to_contain_text(text, timeout=CELL_MILLISECONDS)
    expect(page.get_by_role("columnheader").filter(has_text="loss").first).to_be_visible()
    lab.shoot("containers-runs")
