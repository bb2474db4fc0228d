"""Tests for the notifications of runs, with a browser that allows notifications and with one that forbids them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from hub.process import wait_until
from tests.browser.lab import THEMES, assert_usable, choose_theme, write_notebook
from tests.browser.test_reattach import home_of
from tests.clients.hosts import url_of

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

COMMAND = "Notifications of Runs in the Browser"
START = "%load_ext farandole\n%cluster start --local --ranks 2 --backend none"
FAILS = "%%distributed_train --name <b>broken</b>\nraise ValueError('no such <i>file</i>')"
NAN = """\
%%distributed_train --name diverged
import time
import farandole as fd

for step in range(6):
    fd.report(step=step, loss=float("nan") if step == 3 else 1.0)
    time.sleep(1)
"""

TAGS = "window.shown.map(({tag}) => tag)"
RECORD = """
window.shown = [];
window.asked = 0;
window.Notification = class extends window.Notification {
    static permission = PERMISSION;
    static async requestPermission() { window.asked += 1; return PERMISSION; }
    constructor(title, options) { super(title, options); window.shown.push({notification: this, title, ...options}); }
};
"""
"""JavaScript that records the page's notifications. A browser without a screen forbids them, so the answer is set."""


def open_lab(hub: RunningHub, lab: Lab, user: str, permission: str) -> None:
    """Log in with a browser that gives this answer, open the notebook, start ranks and choose the command."""
    lab.page.context.add_init_script(RECORD.replace("PERMISSION", repr(permission)))
    write_notebook(home_of(hub, user) / "runs.ipynb", START, FAILS, NAN)
    lab.log_in(user)
    lab.start_server(user, "lean")
    lab.open_notebook(user, "runs.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    assert lab.page.evaluate("window.asked") == 0
    lab.page.locator(".lm-MenuBar-itemLabel").get_by_text("Settings", exact=True).click()
    lab.page.locator(".lm-Menu-itemLabel").get_by_text(COMMAND, exact=True).click()


def toast(lab: Lab, text: str) -> Locator:
    """Return JupyterLab's notification with this text."""
    return lab.page.locator(".jp-Notification-Toast-error, .jp-Notification-Toast-warning", has_text=text)


def shown(lab: Lab) -> list[str]:
    """Return the tags of the browser's notifications, without the ids of runs."""
    return [tag.split()[-1] for tag in lab.page.evaluate(TAGS)]


@pytest.mark.timeout(300)
def test_a_failed_run_and_nan_are_shown_in_jupyterlab_and_in_the_browser(hub: RunningHub, lab: Lab):
    open_lab(hub, lab, "noether", "granted")
    second = lab.page.context.new_page()
    second.goto(url_of(hub.url, "/user/noether/lab"))
    expect(second.locator(".fd-statusbar")).to_contain_text("2 ranks", timeout=60_000)
    lab.page.bring_to_front()
    lab.run_cell(1)
    failed = toast(lab, "<b>broken</b> has failed: the cell failed")
    expect(failed).to_contain_text("no such <i>file</i>", timeout=60_000)
    expect(failed.locator("b, i")).to_have_count(0)
    wait_until(lambda: shown(lab) == ["failed"], 30)
    wait_until(lambda: second.evaluate(TAGS) == lab.page.evaluate(TAGS), 30)
    for theme in THEMES:
        choose_theme(lab, theme)
        lab.shoot(f"notification-{theme.split()[-1].lower()}")
    lab.run_cell(2)
    expect(toast(lab, "diverged: NaN or infinite values in loss")).to_have_count(1, timeout=60_000)
    wait_until(lambda: "nan" in shown(lab), 30)
    expect(lab.cell(2).locator(".fd-status")).to_have_text("finished", timeout=60_000)
    lab.page.evaluate("window.shown[0].notification.onclick()")
    expect(lab.page.locator("#farandole-panel").get_by_role("heading", name="<b>broken</b>")).to_be_visible()
    # The page that is loaded after the runs shows none of their events.
    lab.page.reload()
    expect(lab.page.locator(".fd-statusbar")).to_contain_text("2 ranks", timeout=60_000)
    assert shown(lab) == []
    expect(lab.page.locator(".Toastify__toast")).to_have_count(0)


# Jest tests the same with a stand-in for the browser.
@pytest.mark.release
@pytest.mark.timeout(240)
def test_a_browser_that_forbids_notifications_is_explained(hub: RunningHub, lab: Lab):
    open_lab(hub, lab, "tereshkova", "denied")
    expect(toast(lab, "The browser forbids notifications of this page.")).to_contain_text("allow notifications")
    for theme in THEMES:
        choose_theme(lab, theme)
        lab.run_cell(1)
        expect(toast(lab, "<b>broken</b> has failed: the cell failed").first).to_be_visible(timeout=60_000)
        expect(lab.page.locator(".Toastify--animate")).to_have_count(0)
        assert_usable(lab, ".Toastify__toast", f"notification-{theme.split()[-1].lower()}")
    assert shown(lab) == []
