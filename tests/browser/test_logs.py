"""Tests for the log of a run in the main area: search, jump by time, and rows of which few are on the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import (
    THEMES,
    assert_usable,
    choose_theme,
    hide_side_bar,
    open_panel,
    show_tab,
    write_notebook,
)
from tests.browser.test_reattach import home_of

if TYPE_CHECKING:
    from tests.browser.lab import Lab
    from tests.hub import RunningHub

START = "%load_ext farandole\n%cluster start --local --ranks 2 --backend none"
CELL = """\
%%distributed_train --name printer
import time
import farandole as fd

for line in range(5000):
    print(f"rank {fd.rank()} line {line}")
    if line == 2500:
        time.sleep(3)
        print("after the pause")
        time.sleep(3)
"""


@pytest.mark.release
def test_a_line_of_a_long_log_is_found_by_its_text_and_by_its_time(hub: RunningHub, lab: Lab) -> None:
    write_notebook(home_of(hub, "logan") / "printer.ipynb", START, CELL)
    lab.log_in("logan")
    lab.start_server("logan", "lean")
    lab.open_notebook("logan", "printer.ipynb")
    lab.run_all()
    panel = open_panel(lab)
    show_tab(panel, "Runs")
    expect(panel.locator('.fd-status[data-status="finished"]')).to_be_visible(timeout=180_000)
    panel.locator(".fd-run-open").click()
    panel.get_by_role("button", name="Open log").click()
    log = lab.page.locator(".fd-full-log")
    expect(lab.page.get_by_role("tab", name="Log of printer, rank 0")).to_be_visible()
    expect(log.get_by_role("log")).to_contain_text("rank 0 line 4999")
    log.get_by_role("searchbox").fill("LINE 1234")
    current = log.locator("[aria-current]")
    expect(current).to_have_text("rank 0 line 1234")
    log.get_by_role("searchbox").press("Enter")
    expect(current).to_have_text("rank 1 line 1234")
    expect(lab.page.get_by_role("tab", name="Log of printer, rank 1")).to_be_visible()
    expect(log.get_by_role("status")).to_contain_text(re.compile("Match 2 of 2 · rank 1, line 1235 · .*[0-9]"))
    assert log.locator(".fd-log-row").count() < 100
    log.get_by_label("Time to jump to").fill("+0")
    log.get_by_role("button", name="Jump").click()
    expect(current).to_have_text("rank 1 line 0")
    hide_side_bar(lab)
    for theme in THEMES:
        choose_theme(lab, theme)
        assert_usable(lab, ".fd-full-log", f"log-{theme.split()[-1].lower()}")
