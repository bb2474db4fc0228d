"""A driver kernel dies in mid-run: the notebook is opened again, and `%cluster attach` shows the run, which goes on."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from hub.process import processes_of, wait_until
from tests.browser.lab import places, points, wait_for_points, write_notebook

if TYPE_CHECKING:
    import psutil

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

CELL = """\
%%distributed_train --name survivor
import math, time
import farandole as fd

for step in range(290):
    time.sleep(0.5)
    print("step", step)
    fd.report(step=step, loss=math.exp(-step / 100))
"""

STEPS = """\
import farandole

reports = farandole.load_run("survivor")
steps = [part["step"].to_list() for _, part in reports.groupby("rank")]
print("ranks that are whole:", sum(one == list(range(len(one))) for one in steps))
print("last step:", max(map(max, steps)))
"""
"""Says of how many ranks each step is in the run's files, once."""


def driver_of(hub: RunningHub, user: str) -> psutil.Process:
    """Return the kernel of the user's notebook; those of workers are children of other servers."""
    for process in processes_of(hub.state):
        if "ipykernel_launcher" not in " ".join(process.cmdline()):
            continue
        environment = process.environ()
        if environment.get("JUPYTERHUB_USER") == user and not environment.get("JUPYTERHUB_SERVER_NAME"):
            return process
    raise AssertionError(f"{user} has no kernel")


@pytest.mark.timeout(300)
def test_a_run_outlives_the_kernel_that_started_it(hub: RunningHub, lab: Lab):
    home = hub.state / "homes" / "noether"
    home.mkdir(parents=True, exist_ok=True)
    start = "%load_ext farandole\n%cluster start --workers 2 --backend none"
    attach = "%load_ext farandole\n%cluster attach"
    write_notebook(home / "survivor.ipynb", start, CELL, attach, "%runs", "%runs stop survivor", STEPS)
    lab.log_in("noether")
    lab.start_server("noether", "lean")
    lab.open_notebook("noether", "survivor.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    wait_for_points(lab.run_cell(1), "loss", 10)

    driver_of(hub, "noether").send_signal(signal.SIGKILL)
    expect(lab.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)
    lab.open_notebook("noether", "survivor.ipynb")
    attached = lab.run_cell(2)
    wait_for_points(attached, "loss", 11)
    expect(attached.locator(".fd-status")).to_have_text("running")
    expect(attached).to_contain_text("step 0")
    assert_even(places(attached, "loss"))
    seen = points(attached, "loss")
    wait_until(lambda: points(attached, "loss") >= seen + 5, 60)
    lab.shoot("attached")
    expect(lab.run_cell(3)).to_contain_text("running (detached)")

    expect(lab.run_cell(4)).to_contain_text("is interrupted", timeout=60_000)
    expect(attached.locator(".fd-status")).to_have_text("interrupted")
    # The dashboard has a point for each step, the last one included; the files say so of each rank.
    told = lab.run_cell(5)
    expect(told).to_contain_text("ranks that are whole: 2")
    last = int(re.search(r"last step: (\d+)", told.inner_text())[1])
    assert points(attached, "loss") == last + 1 >= seen + 5
    assert_even(places(attached, "loss"))


def assert_even(xs: list[float]):
    """Check that a line has its points one step after the other: none is missing, and none is there twice."""
    width = (xs[-1] - xs[0]) / (len(xs) - 1)
    assert xs == pytest.approx([xs[0] + number * width for number in range(len(xs))], abs=width / 4)
