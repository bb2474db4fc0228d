"""Tests that users see suggestions, remedies, and lines, sizes and times of their own in JupyterLab."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from farandole.protocol import Status
from farandole.runs.store import RunStore
from playwright.sync_api import expect

from tests.browser.lab import DESKTOP, Lab, open_panel, show_tab, write_notebook
from tests.browser.test_reattach import home_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.hub import RunningHub

ZONE = "Asia/Kathmandu"
"""A time zone that differs from UTC by hours and minutes."""

START = "%load_ext farandole\n%cluster start --workers 2 --backend torch"
FAILS = "%%distributed\nx = 1\nnumber = int('seven')"
WAITS = """\
%%distributed
import time, torch.distributed as dist, farandole as fd
time.sleep(40 if fd.rank() else 0)
dist.barrier()
"""
MODEL = """\
%%distributed
import torch, farandole as fd
m = torch.nn.Linear(1, 1)
o = torch.optim.SGD(m.parameters(), lr=0.1)
"""
BEFORE = {
    "%cluster strat": "Did you mean 'start' or 'status'?",
    "%cluster start --wrkers 2": "Did you mean '--workers'",
    "%cluster start --profile leen": "Did you mean 'lean'",
    "%cluster start --workers 17": "Stop a cluster (%cluster list, %cluster stop) or start fewer workers.",
}
"""Lines with a mistake, and a part of the remedy that each error has."""

AFTER = {
    "%%distributed_train -o 9x\npass": "9x",
    f"{MODEL}fd.prepare(o, m)": "call fd.prepare(model, optimizer, loader), or name the arguments",
    f"{MODEL}m, o = fd.prepare(m, o)": "model, optimizer, _ = fd.prepare(model, optimizer)",
    "%%distributed\nfd.report({'loss': 1.0})": "write fd.report(**values)",
}
"""Cells with a mistake that need a cluster, and a part of the remedy that each error has."""

DEFINES = "%%distributed\nthreshold = 3"
SCALES = "%cluster scale 1\n%cluster scale 2"
USES = "%%distributed\nprint(threshold + 1)"


def explain(lab: Lab, first: int, mistakes: dict[str, str]) -> None:
    """Run cells with mistakes, and check that each error has its remedy and no address."""
    for index, remedy in enumerate(mistakes.values(), first):
        cell = lab.run_cell(index)
        expect(cell).to_contain_text(remedy)
        expect(cell).not_to_contain_text("http://")


@pytest.fixture
def far_lab(hub: RunningHub, chromium: Browser) -> Iterator[Lab]:
    """JupyterLab in a browser whose time zone differs from that of the hub."""
    with chromium.new_context(viewport=DESKTOP, timezone_id=ZONE) as context:
        context.set_default_timeout(60_000)
        yield Lab(hub, context.new_page())


@pytest.mark.timeout(300)
def test_mistakes_and_errors_of_ranks_are_explained(hub: RunningHub, lab: Lab):
    cells = [*BEFORE, START, *AFTER, FAILS, WAITS, DEFINES, SCALES, USES]
    write_notebook(home_of(hub, "leavitt") / "messages.ipynb", *cells)
    lab.log_in("leavitt")
    lab.start_server("leavitt", "lean")
    lab.open_notebook("leavitt", "messages.ipynb")
    explain(lab, 0, BEFORE)
    started = lab.run_cell(len(BEFORE))
    expect(started).to_contain_text("2 ranks", timeout=90_000)
    expect(started.locator(".jp-OutputArea-output[data-mime-type*=stderr]")).to_have_count(0)
    explain(lab, len(BEFORE) + 1, AFTER)
    lab.shoot("mistakes")

    failed = lab.run_cell(cells.index(FAILS))
    expect(failed).to_contain_text("invalid literal for int() with base 10: 'seven'")
    expect(failed).to_contain_text(f"Cell In[{cells.index(FAILS) + 1}], line 3")
    expect(failed).to_contain_text("----> 3 number = int('seven')")
    expect(lab.run_cell(cells.index(WAITS))).to_contain_text(re.compile(r"rank 0 waits in .*barrier"), timeout=60_000)
    lab.shoot("messages")

    lab.run_cell(cells.index(DEFINES))
    expect(lab.run_cell(cells.index(SCALES))).to_contain_text("2 ranks", timeout=120_000)
    late = lab.run_cell(cells.index(USES))
    expect(late).to_contain_text("Rank 1 was started after earlier cells; run the cell that defines the name again.")


@pytest.mark.timeout(240)
def test_sizes_and_times_are_those_of_the_user(hub: RunningHub, far_lab: Lab):
    home = home_of(hub, "cannon")
    run = RunStore(home / "farandole" / "runs").create(code="pass", backend="none", size=1, workers=["main-w0"])
    run.finish(Status.FINISHED)
    write_notebook(home / "sizes.ipynb", START, "%runs")
    far_lab.log_in("cannon")
    far_lab.start_server("cannon", "lean")
    far_lab.open_notebook("cannon", "sizes.ipynb")
    expect(far_lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    panel = open_panel(far_lab)
    worker = panel.get_by_role("listitem", name="main-w1")
    expect(worker).to_contain_text(re.compile(r"\d+ MiB / \d+\.\d GiB"))

    show_tab(panel, "Runs")
    started = datetime.fromtimestamp(run.started, ZoneInfo(ZONE))
    # English browsers would write 12 hours and AM or PM by themselves.
    expect(panel).to_contain_text(re.compile(rf"{started:%H:%M}(?!\s?[AP]M)"))
    # Kernels do not know the browser's time zone, so they name theirs.
    listed = datetime.fromtimestamp(run.started).astimezone()
    expect(far_lab.run_cell(1)).to_contain_text(listed.strftime("%Y-%m-%d %H:%M %Z"))
    far_lab.shoot("sizes")
