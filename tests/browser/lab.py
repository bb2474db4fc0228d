"""The actions of a user with mouse and keyboard, from the login page to the notebook."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from playwright.sync_api import Error, expect

from hub.process import wait_until
from tests.clients.hosts import url_of
from tests.failures import attach

if TYPE_CHECKING:
    import pytest
    from playwright.sync_api import Locator, Page, ViewportSize

ARTIFACTS = Path(__file__).parent.parent / "artifacts"
THEMES = "JupyterLab Dark", "JupyterLab Light"
DESKTOP: ViewportSize = {"width": 1400, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

NOTEBOOK = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook"
"""The visible notebook. JupyterLab also restores the tabs of the user's last page, such as those of earlier tests."""

AXE = Path(__file__).parents[2] / "extension/labextension/node_modules/axe-core/axe.min.js"
FAULTS = """async (parts) => (await axe.run(document.querySelectorAll(parts))).violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .map(({id, nodes}) => `${id}: ${nodes.map((node) => node.html).join("; ")}`)"""
"""JavaScript that returns the serious and critical accessibility faults that axe-core finds in parts of the page."""

BEYOND = """parts => [...document.querySelectorAll(parts)].flatMap((part) => [part, ...part.querySelectorAll("*")])
    .filter((one) => !one.parentElement.closest(".fd-scroll, .fd-log-rows, pre, svg"))
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
    .map((one) => one.outerHTML.slice(0, 200))"""
"""JavaScript that returns the parts of the page beyond its right edge, except in scroll areas, ``pre`` and ``svg``."""

LAST_ERRORS = 10
"""The maximum number of errors from a page's console that the report of a failed test contains."""

# Playwright's default of 5 s is too short for pages that show a live run while other tests use all cores.
expect.set_options(timeout=30_000)


def wait_for_server(page: Page, pattern: str, seconds: float) -> None:
    """Wait until the page of a starting server has loaded.

    Starting a container adds a network interface. Chromium then aborts pending requests, so the page is reloaded.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            page.wait_for_url(pattern, timeout=seconds * 1000)
            return
        except Error as exc:
            if "ERR_NETWORK_CHANGED" not in str(exc) or time.monotonic() > end:
                raise
        with suppress(Error):
            page.reload()


def open_page(page: Page, url: str, part: str, seconds: float) -> None:
    """Open a page and wait until the element with the selector ``part`` is visible.

    Chromium aborts pending requests when a starting container adds a network interface. If this happens to a request
    for a script, the page stays empty and is therefore reloaded.
    """
    aborted: list[str] = []
    page.on("requestfailed", lambda request: aborted.append(request.failure or ""))
    page.goto(url)
    end = time.monotonic() + seconds
    while not page.locator(part).first.is_visible() and time.monotonic() < end:
        page.wait_for_timeout(1000)
        if any("ERR_NETWORK_CHANGED" in failure for failure in aborted):
            aborted.clear()
            page.reload()
    expect(page.locator(part).first).to_be_visible()


class Hub(Protocol):
    """The attributes of a hub that the browser uses."""

    url: str
    password: str


class Lab:
    """A page in the browser of one user, with the user's actions on the hub and in JupyterLab."""

    def __init__(self, hub: Hub, page: Page) -> None:
        self.hub = hub
        self.errors: list[str] = []
        self.users: list[str] = []
        """The users who have logged in."""
        self._take(page)

    def _take(self, page: Page) -> None:
        self.page = page
        # Confirm the dialog that asks whether to leave the page.
        page.on("dialog", lambda dialog: dialog.accept())
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def reopen(self) -> None:
        """Close the page and open another page in the same browser, in which the user is still logged in."""
        browser = self.page.context
        self.page.close()
        self._take(browser.new_page())

    def shoot(self, name: str) -> Path:
        """Save a screenshot of the page under this name, and return the path of the file."""
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path

    def log_in(self, user: str) -> None:
        """Log in at the hub with the login form."""
        self.users.append(user)
        self.page.goto(f"{self.hub.url}/hub/login")
        self.page.get_by_label("Username:").fill(user)
        self.page.get_by_label("Password:", exact=True).fill(self.hub.password)
        self.shoot("login")
        self.page.get_by_role("button", name="Sign in").click()

    def start_server(self, user: str, profile: str) -> None:
        """Choose a profile on the spawn page and start the server."""
        self.page.goto(f"{self.hub.url}/hub/spawn/{user}")
        self.page.locator(f"input[type=radio][value={profile}]").check()
        self.shoot("spawn")
        self.page.get_by_role("button", name="Start", exact=True).click()
        wait_for_server(self.page, f"**/user/{user}/lab**", 120)

    def open_notebook(self, user: str, name: str) -> None:
        """Open a notebook in JupyterLab and wait for its kernel."""
        self.page.goto(url_of(self.hub.url, f"/user/{user}/lab/tree/{name}"))
        # JupyterLab first shows the notebooks of the user's last page.
        shown = self.page.locator("#jp-main-dock-panel .lm-TabBar-tab.lm-mod-current .lm-TabBar-tabLabel")
        expect(shown).to_have_text(Path(name).name, timeout=60_000)
        self.cell(0).wait_for()
        # The status bar may still show the kernel of another notebook. Until its own kernel has started, a notebook
        # ignores Shift+Enter.
        status_bar = self.page.locator("#jp-main-statusbar")
        expect(status_bar).to_contain_text(Path(name).name, timeout=60_000)
        expect(status_bar).to_contain_text("Python 3 (ipykernel) | Idle", timeout=60_000)

    def new_notebook(self) -> None:
        """Create a notebook from JupyterLab's launcher and wait for its kernel."""
        self.page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
        expect(self.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)

    def retype(self, cell: Locator, old: str, new: str) -> None:
        """Replace a text in a line of a cell, with the keyboard. The line must not be indented."""
        line = cell.locator(".cm-line", has_text=old).first
        cell.locator(".cm-content").click()
        text = line.text_content() or ""
        line.click()
        end = text.index(old) + len(old)
        for key in ("Home", *["ArrowRight"] * end, *["Backspace"] * len(old)):
            self.page.keyboard.press(key)
        self.page.keyboard.type(new)
        expect(cell.locator(".cm-line", has_text=text.replace(old, new, 1))).to_have_count(1)

    def run_all(self) -> None:
        """Run all cells from the menu "Run"."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text="Run").click()
        self.page.locator(".lm-Menu-itemLabel").get_by_text("Run All Cells", exact=True).click()

    def restart_kernel(self) -> None:
        """Restart the kernel from the menu "Kernel", and wait for the new process."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text="Kernel").click()
        self.page.locator(".lm-Menu-itemLabel").filter(has_text=re.compile("^Restart Kernel…$")).click()
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        expect(self.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)

    def expect_no_notifications(self) -> None:
        """Check that JupyterLab has shown no notification since the page was loaded or the last one was dismissed."""
        expect(self.page.locator(".jp-Notification-Status-Text")).to_have_text("0")

    def run_cell(self, index: int) -> Locator:
        """Run one cell with the keyboard, and return the cell."""
        cell = self.cell(index)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        return cell

    def cell(self, index: int) -> Locator:
        """Return the cell of the visible notebook with this index, counted from 0."""
        return self.page.locator(f"{NOTEBOOK} .jp-Cell").nth(index)

    def cell_with(self, text: str) -> Locator:
        """Return the first cell of the visible notebook that contains this text."""
        return self.page.locator(f"{NOTEBOOK} .jp-Cell", has_text=text).first


def open_panel(lab: Lab) -> Locator:
    """Open the panel with its icon in the left sidebar, unless the panel is already visible."""
    panel = lab.page.locator("#farandole-panel")
    if not panel.is_visible():
        lab.page.locator('.jp-SideBar [data-id="farandole-panel"]').click()
    expect(panel).to_be_visible()
    return panel


def show_tab(panel: Locator, name: str) -> None:
    """Select a tab of the panel."""
    panel.get_by_role("tab", name=name).click()
    expect(panel.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")


def choose_theme(lab: Lab, name: str) -> None:
    """Choose a theme in the menu "Settings"."""
    for item in ("Settings", "Theme", name):
        bar = ".lm-MenuBar-itemLabel" if item == "Settings" else ".lm-Menu-itemLabel"
        lab.page.locator(bar).get_by_text(item, exact=True).click()
    light = "true" if name.endswith("Light") else "false"
    expect(lab.page.locator("body")).to_have_attribute("data-jp-theme-light", light)


def assert_no_faults(lab: Lab, parts: str) -> None:
    """Check with axe-core that these parts of the page have no accessibility faults."""
    lab.page.evaluate(AXE.read_text(encoding="utf-8"))
    assert lab.page.evaluate(FAULTS, parts) == []


def assert_usable(lab: Lab, parts: str, name: str) -> None:
    """Check parts of the page with axe-core, and that nothing is cut off on a phone. Save pictures with this name."""
    for device, size in (("desktop", DESKTOP), ("phone", PHONE)):
        lab.page.set_viewport_size(size)
        expect(lab.page.locator(parts).first).to_be_visible()
        if device == "phone":
            # JupyterLab arranges the page again after the change of its size.
            wait_until(lambda: lab.page.evaluate(BEYOND, parts) == [], 30)
        assert_no_faults(lab, parts)
        lab.shoot(f"{name}-{device}")
    lab.page.set_viewport_size(DESKTOP)


def hide_side_bar(lab: Lab) -> None:
    """Hide the side bar on the left, for which a phone has no space, by a click on the tab that it shows."""
    shown = lab.page.locator(".jp-SideBar.jp-mod-left .lm-TabBar-tab.lm-mod-current")
    if shown.count():
        shown.click()
    expect(shown).to_have_count(0)


def shoot_failure(item: pytest.Item, report: pytest.TestReport) -> None:
    """If the test has failed, save a screenshot, and add its path and the page's last errors to the report."""
    lab = getattr(item, "funcargs", {}).get("lab")
    if report.failed and lab is not None and not lab.page.is_closed():
        attach(report, "errors of the page", lambda: "\n".join(lab.errors[-LAST_ERRORS:]))
        attach(report, "browser", lambda: f"{lab.page.url}\npicture: {lab.shoot(f'failed-{item.name}')}")


def points(cell: Locator, series: str) -> int:
    """Return the number of points in the cell's chart of ``series``, or 0 if there is no chart yet."""
    return len(places(cell, series))


def places(cell: Locator, series: str) -> list[float]:
    """Return the x positions of the points in the cell's chart of ``series``, in pixels."""
    line = cell.locator(".fd-chart", has_text=series).locator("path.fd-mean").first
    if not line.count():
        return []
    return [float(x) for x in re.findall(r"[ML]([\d.]+),", line.get_attribute("d") or "")]


def wait_for_points(cell: Locator, series: str, least: int, deadline: float = 60.0) -> None:
    """Wait until the cell's chart of ``series`` has at least ``least`` points."""
    wait_until(lambda: points(cell, series) >= least, deadline)


def show(element: Locator) -> None:
    """Scroll until the whole element is visible.

    JupyterLab renders cells late, which moves the element, so scrolling once is not enough.
    """

    def seen() -> bool:
        element.evaluate("element => element.scrollIntoView({block: 'end'})")
        box, size = element.bounding_box(), element.page.viewport_size
        return bool(box and size and box["y"] + box["height"] <= size["height"])

    wait_until(seen, 30)


def write_notebook(path: Path, *cells: str) -> None:
    """Write a notebook with these code cells."""
    code = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    content = {
        "cells": [{**code, "id": f"cell-{number}", "source": source} for number, source in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(content), encoding="utf-8")
