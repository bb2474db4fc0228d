"""Tests that a run survives the death of its driver, and that `%cluster attach` shows it in the reopened notebook."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import psutil
import pytest
from farandole.protocol import Status
from farandole.runs.store import RunStore
from playwright.sync_api import expect

from hub.process import processes_of, wait_until
from tests.browser.lab import open_panel, places, points, show_tab, wait_for_points, write_notebook

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

START = "%load_ext farandole\n%cluster start --workers 2 --backend {}"
ATTACH = "%load_ext farandole\n%cluster attach"

CELL = """\
%%distributed_train --name survivor
import math, time
import farandole as fd

for step in range(290):
    time.sleep(0.5)
    print("step", step)
    fd.report(step=step, loss=math.exp(-step / 100))
"""

ELASTIC_STEPS = 290
ELASTIC_CELL = f"""\
%%distributed_train --name survivor --elastic
import time, torch
from pathlib import Path
import farandole as fd

model = torch.nn.Linear(4, 1)
model, optimizer, _ = fd.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
state = fd.state(model, optimizer, step=0)

@fd.elastic
def train(state):
    while state.step < {ELASTIC_STEPS}:
        time.sleep(0.01 if (Path.home() / "hurry").exists() else 0.7)
        loss = (model(torch.randn(8, 4)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", state.step)
        fd.report(step=state.step, loss=loss)
        state.step += 1
        state.commit()

train(state)
fd.result(state.step)
"""

STEPS = """\
import farandole

reports = farandole.load_run("survivor")
steps = [part["step"].to_list() for _, part in reports.groupby("rank")]
print("ranks that are whole:", sum(one == list(range(len(one))) for one in steps))
print("last step:", max(map(max, steps)))
"""
"""A cell that prints how many ranks reported every step, and the last step, both read from the run's files."""


def kernel_of(hub: RunningHub, user: str, server: str = "") -> psutil.Process:
    """Return the process of the user's notebook kernel, or of the kernel of the worker ``server``."""
    for process in processes_of(hub.state):
        try:
            environment = process.environ() if "ipykernel_launcher" in " ".join(process.cmdline()) else {}
        except psutil.Error:  # it has just ended
            continue
        if (environment.get("JUPYTERHUB_USER"), environment.get("JUPYTERHUB_SERVER_NAME", "")) == (user, server):
            return process
    raise AssertionError(f"{user}'s server {server!r} has no kernel")


def home_of(hub: RunningHub, user: str) -> Path:
    home = hub.state / "homes" / user
    home.mkdir(parents=True, exist_ok=True)
    return home


def attach_after_a_kill(hub: RunningHub, lab: Lab, user: str, backend: str, cells: list[str]) -> Locator:
    """Run the first of ``cells``, kill the driver, and return the cell that attaches to the run and shows all of it."""
    write_notebook(home_of(hub, user) / "survivor.ipynb", START.format(backend), cells[0], ATTACH, *cells[1:])
    lab.log_in(user)
    lab.start_server(user, "lean")
    lab.open_notebook(user, "survivor.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    wait_for_points(lab.run_cell(1), "loss", 10)

    kernel_of(hub, user).send_signal(signal.SIGKILL)
    expect(lab.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)
    lab.expect_no_notifications()
    lab.open_notebook(user, "survivor.ipynb")
    attached = lab.run_cell(2)
    wait_for_points(attached, "loss", 11)
    expect(attached.locator(".fd-status")).to_have_text("running")
    expect(attached).to_contain_text("step 0")
    assert_even(places(attached, "loss"))
    wait_for_more(attached)
    lab.shoot(f"attached-{user}")
    return attached


# tests/browser/test_promises.py tests the same with a closed browser.
@pytest.mark.release
@pytest.mark.timeout(300)
def test_a_run_outlives_the_kernel_that_started_it(hub: RunningHub, lab: Lab):
    attached = attach_after_a_kill(hub, lab, "kowalewski", "none", [CELL, "%runs", "%runs stop survivor", STEPS])
    seen = points(attached, "loss")
    expect(lab.run_cell(3)).to_contain_text("running (detached)")

    expect(lab.run_cell(4)).to_contain_text("is interrupted", timeout=60_000)
    expect(attached.locator(".fd-status")).to_have_text("interrupted")
    # The dashboard shows one point for each step, but the files have a report of each rank for each step.
    output = lab.run_cell(5)
    expect(output).to_contain_text("ranks that are whole: 2")
    last = int(re.search(r"last step: (\d+)", output.inner_text())[1])
    wait_until(lambda: points(attached, "loss") == last + 1 >= seen, 30)
    assert_even(places(attached, "loss"))


@pytest.mark.release
@pytest.mark.timeout(420)
def test_an_elastic_run_is_taken_over_and_survives_the_loss_of_a_rank(hub: RunningHub, lab: Lab):
    attached = attach_after_a_kill(hub, lab, "germain", "torch", [ELASTIC_CELL])
    expect(attached).to_contain_text("another driver leads the run now")

    kernel_of(hub, "germain", "main-w1").send_signal(signal.SIGKILL)
    expect(attached).to_contain_text("joined: continuing with 2 ranks", timeout=120_000)
    expect(attached.locator(".fd-note", has_text="was lost").first).not_to_have_attribute("data-kind", "info")
    progress = attached.locator(".fd-note", has_text="another driver leads the run now")
    expect(progress).to_have_attribute("data-kind", "info")
    wait_for_more(attached)
    (home_of(hub, "germain") / "hurry").touch()
    expect(attached.locator(".fd-status")).to_have_text("finished", timeout=60_000)
    wait_until(lambda: points(attached, "loss") == ELASTIC_STEPS, 30)
    assert_even(places(attached, "loss"))

    run = RunStore(home_of(hub, "germain") / "farandole" / "runs").load("survivor")
    assert (run.status, run.results) == (Status.FINISHED, {0: ELASTIC_STEPS, 1: ELASTIC_STEPS})
    reports = run.dataframe()
    assert not reports.duplicated(["rank", "time"]).any()
    assert set(reports[reports["rank"] == 0]["step"]) == set(range(ELASTIC_STEPS))


@pytest.mark.timeout(300)
def test_a_run_outlives_a_restart_from_the_menu_and_its_dashboard_shows_it_again(hub: RunningHub, lab: Lab):
    write_notebook(home_of(hub, "curie") / "restart.ipynb", START.format("none"), CELL, ATTACH)
    lab.log_in("curie")
    lab.start_server("curie", "lean")
    lab.open_notebook("curie", "restart.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    first = lab.run_cell(1)
    wait_for_points(first, "loss", 5)

    lab.restart_kernel()
    expect(first.locator(".fd-status")).to_have_text("no kernel", timeout=30_000)
    expect(first.get_by_role("button", name="Stop", exact=True)).to_be_enabled()
    expect(first).not_to_contain_text("KeyboardInterrupt")
    assert RunStore(home_of(hub, "curie") / "farandole" / "runs").load("survivor").status is Status.LOST
    lab.shoot("restarted-kernel")

    attached = lab.run_cell(2)
    expect(attached.locator(".fd-status")).to_have_text("running", timeout=60_000)
    expect(first.locator(".fd-status")).to_have_text("running")
    wait_for_more(first)
    assert_even(places(first, "loss"))
    lab.expect_no_notifications()
    first.get_by_role("button", name="Stop", exact=True).click()
    for dashboard in (first, attached):
        expect(dashboard.locator(".fd-status")).to_have_text("interrupted", timeout=30_000)

    lab.restart_kernel()
    assert_stop_asks(lab)


def assert_stop_asks(lab: Lab):
    """Check that an idle cluster that no kernel leads asks before it stops, because its ranks may hold variables."""
    panel = open_panel(lab)
    show_tab(panel, "Clusters")
    expect(panel.get_by_role("button", name=re.compile("^led by "))).to_have_count(0, timeout=30_000)
    panel.get_by_role("button", name="Stop main").click()
    dialog = lab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("may hold variables")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    lab.shoot("stop-without-a-kernel")
    dialog.get_by_role("button", name="Cancel").click()
    expect(panel.get_by_role("region", name="Cluster main").locator(".fd-status").first).to_have_text("ready")


def wait_for_more(attached: Locator):
    """Wait until the dashboard shows at least five more steps."""
    wait_for_points(attached, "loss", points(attached, "loss") + 5)


def assert_even(xs: list[float]):
    """Check that a line's points are evenly spaced, because no step may be missing, duplicated or out of order."""
    width = (xs[-1] - xs[0]) / (len(xs) - 1)
    assert xs == pytest.approx([xs[0] + number * width for number in range(len(xs))], abs=width / 4)
