"""Tests of JupyterLab with two notebooks that use one cluster, a closed browser, dead ranks, or a stopped server.

No cell loads the extension, because kernels of this environment load it themselves.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from farandole.protocol import Status
from farandole.runs.store import RunStore
from playwright.sync_api import expect

from hub.process import wait_until
from tests.browser.lab import open_panel, wait_for_points, write_notebook
from tests.browser.test_reattach import STEPS, home_of, kernel_of

if TYPE_CHECKING:
    from tests.browser.lab import Lab
    from tests.hub import RunningHub

START = "%cluster start --workers {} --backend none"
ENDS = "import os, threading\nthreading.Timer(15, os._exit, (1,)).start()"
"""A cell whose kernel ends by itself, without a signal, 15 seconds later."""

TRAIN = """\
%%distributed_train --name survivor
import math, time
import farandole as fd

for step in range(120):
    time.sleep(0.3)
    fd.report(step=step, loss=math.exp(-step / 100))
"""


@pytest.mark.timeout(240)
def test_a_cluster_of_two_notebooks_stops_without_a_false_error(hub: RunningHub, lab: Lab):
    home = home_of(hub, "burnell")
    write_notebook(home / "first.ipynb", "%cluster start?", START.format(2))
    write_notebook(home / "second.ipynb", "%cluster attach", "%cluster status")
    lab.log_in("burnell")
    lab.start_server("burnell", "lean")
    lab.open_notebook("burnell", "first.ipynb")
    lab.run_cell(0)
    help_text = lab.page.get_by_text("--workers").first
    expect(help_text).to_be_visible()
    expect(lab.page.get_by_text("Object `start` not found")).to_have_count(0)
    expect(lab.run_cell(1)).to_contain_text("2 ranks", timeout=90_000)
    lab.open_notebook("burnell", "second.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=60_000)

    panel = open_panel(lab)
    cluster = panel.get_by_role("region", name="Cluster main")
    expect(cluster.locator(".fd-status").first).to_have_text("ready")
    cluster.get_by_role("button", name="Stop main").click()
    lab.page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    expect(panel).to_contain_text("No cluster yet", timeout=60_000)
    expect(panel.get_by_role("alert")).to_have_count(0)
    expect(lab.page.locator("body")).not_to_contain_text("the hub answered")
    lab.shoot("stopped-for-two")


@pytest.mark.timeout(300)
def test_a_run_outlives_its_kernel_while_the_browser_is_closed(hub: RunningHub, lab: Lab):
    write_notebook(home_of(hub, "rubin") / "closed.ipynb", START.format(2), ENDS, TRAIN, "%cluster attach", STEPS)
    lab.log_in("rubin")
    lab.start_server("rubin", "lean")
    lab.open_notebook("rubin", "closed.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    before = kernel_of(hub, "rubin").pid
    lab.run_cell(1)
    wait_for_points(lab.run_cell(2), "loss", 3)
    lab.page.goto("about:blank")
    wait_until(lambda: replaced(hub, before), 60)

    lab.open_notebook("rubin", "closed.ipynb")
    attached = lab.run_cell(3)
    expect(attached.locator(".fd-status")).to_have_text("finished", timeout=120_000)
    expect(lab.run_cell(4)).to_contain_text("ranks that are whole: 2")
    assert "last step: 119" in lab.cell(4).inner_text()
    assert RunStore(home_of(hub, "rubin") / "farandole" / "runs").load("survivor").status is Status.FINISHED
    expect(lab.page.locator(".Toastify__toast--error, .Toastify__toast--warning")).to_have_count(0)
    lab.shoot("closed-browser")


def replaced(hub: RunningHub, pid: int) -> bool:
    """Return whether a new kernel has replaced the one with this process id."""
    try:
        return kernel_of(hub, "rubin").pid != pid
    except AssertionError:
        return False


@pytest.mark.timeout(240)
def test_dead_ranks_are_not_ready_and_a_stopped_server_hides_no_cluster(hub: RunningHub, lab: Lab):
    write_notebook(home_of(hub, "payne") / "dead.ipynb", START.format(1))
    lab.log_in("payne")
    lab.start_server("payne", "lean")
    lab.open_notebook("payne", "dead.ipynb")
    expect(lab.run_cell(0)).to_contain_text("1 rank", timeout=90_000)
    panel = open_panel(lab)
    status = panel.get_by_role("region", name="Cluster main").locator(".fd-status").first
    expect(status).to_have_text("ready")
    kernel_of(hub, "payne", "main-w0").send_signal(signal.SIGKILL)
    expect(status).to_have_text("dead", timeout=60_000)
    lab.shoot("dead-cluster")

    hub.api(hub.token_for("payne", ["self"]), "DELETE", "/hub/api/users/payne/server")
    expect(panel.get_by_role("alert")).to_have_text(
        "The notebook server does not answer. The page tries again.", timeout=60_000
    )
    expect(panel).not_to_contain_text("No cluster yet")
    lab.shoot("stopped-server")
