"""Tests for the panel in JupyterLab: training without magics, and earlier runs that are shown again after a reload."""

from __future__ import annotations

import re
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import torch
from farandole import Endpoint
from farandole.ranks.models.save import save_model
from playwright.sync_api import TimeoutError as Late
from playwright.sync_api import expect

from hub.process import wait_until
from tests.browser.lab import (
    DESKTOP,
    PHONE,
    THEMES,
    assert_no_faults,
    choose_theme,
    open_panel,
    points,
    show_tab,
    wait_for_points,
    write_notebook,
)
from tests.browser.test_reattach import CELL, START, home_of, kernel_of
from tests.clients.hosts import url_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

PARTS = "#farandole-panel, .fd-cell-mark, .fd-statusbar"
"""The selectors of the elements that the extension adds to the page."""

CUT_OFF = """panel => {
    const view = panel.querySelector(".fd-tabpanel");
    const edge = view.getBoundingClientRect().left + view.clientWidth;
    return [...view.querySelectorAll("*")]
        .filter((part) => !part.parentElement.closest(".fd-scroll, pre, svg"))
        .filter((part) => part.getBoundingClientRect().right > edge + 1)
        .map((part) => part.outerHTML.slice(0, 200));
}"""
"""JavaScript that returns the elements beyond the panel's right edge, except in scroll areas, ``pre`` and ``svg``."""

TONE = "status => getComputedStyle(status).getPropertyValue('--fd-tone')"
"""JavaScript that returns the colour of a status."""

WIDTH = 320
"""The smallest width of the panel, in pixels."""

PLAIN = "import os\nname = f'{os.getpid()}'  # who\nfor step in range(3): print(step)"
ASKING = "%%distributed_train\nthe_"
NAMES = "%%distributed\nthe_answer = 42\nthe_question = None"
TOKENS = """(cell, skipped) => [...cell.querySelectorAll(".cm-line")].slice(skipped).map(
    (line) => [...line.querySelectorAll("span")].map((token) => [token.textContent, token.className]))"""
"""JavaScript that returns the tokens of a cell's lines and their style classes, without the first ``skipped`` lines."""


def reload(lab: Lab) -> Locator:
    """Reload the page, check that the panel is still visible, and return the panel."""
    lab.page.reload()
    panel = lab.page.locator("#farandole-panel")
    expect(panel).to_be_visible(timeout=60_000)
    return panel


def narrow(lab: Lab) -> None:
    """Drag the handle beside the panel until the panel has its smallest width."""
    # JupyterLab lays a resized window out a moment later, and then a drag starts from a width that is no longer true.
    wait_until(lambda: narrowed(lab) == pytest.approx(WIDTH, abs=0.5), 10)


def narrowed(lab: Lab) -> float:
    """Drag the handle beside the panel once, and return the width that the panel has then, in pixels."""
    panel, mouse = lab.page.locator("#farandole-panel"), lab.page.mouse
    box = panel.bounding_box()
    assert box is not None
    handle = lab.page.locator("#jp-main-split-panel > .lm-SplitPanel-handle:not(.lm-mod-hidden)").first.bounding_box()
    assert handle is not None
    x, y = handle["x"] + handle["width"] / 2, handle["y"] + handle["height"] / 2
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + WIDTH - box["width"], y, steps=4)
    mouse.up()
    width: float = panel.evaluate("panel => panel.getBoundingClientRect().width")
    return width


def assert_accessible(lab: Lab) -> None:
    """Check that all elements of the extension are accessible, and that the narrow panel cuts nothing off."""
    narrow(lab)
    assert_no_faults(lab, PARTS)
    assert lab.page.locator("#farandole-panel").evaluate(CUT_OFF) == []


def assert_accessible_in_all_tabs(lab: Lab, name: str) -> None:
    panel = lab.page.locator("#farandole-panel")
    for theme in THEMES:
        choose_theme(lab, theme)
        for tab in ("Endpoints", "Clusters", "GPUs", "Runs"):
            show_tab(panel, tab)
            if tab == "Endpoints":
                send_example(lab, panel)
            assert_accessible(lab)
        lab.shoot(f"panel-{name}-{theme.split()[-1].lower()}")


@contextmanager
def served(hub: RunningHub, user: str) -> Iterator[None]:
    """Run an endpoint that serves a model of the user."""
    where = {"hub_url": hub.url, "token": hub.token_for(user)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_MODELS", str(home_of(hub, user) / "farandole" / "models"))
        save_model(torch.nn.Linear(4, 1), "small", example=torch.ones(1, 4))
        endpoint = Endpoint.start("small:1", progress=len, **where)
    try:
        yield
    finally:
        endpoint.stop()


def send_example(lab: Lab, panel: Locator) -> None:
    """Open the form of the endpoint, send the example of its model, and wait for the answer."""
    panel.get_by_role("button", name="Send a request to small").click()
    form = panel.get_by_role("form", name="Request to small")
    form.get_by_role("button", name="Send", exact=True).click()
    expect(form.get_by_role("group", name="Answer of small")).to_be_visible()
    lab.shoot("panel-endpoint")


def save(lab: Lab) -> None:
    lab.page.keyboard.press("Control+s")
    # JupyterLab may take more than 5 s to save a notebook while other tests are running.
    expect(lab.page.locator(".jp-mod-dirty")).to_have_count(0, timeout=30_000)


def show_system(lab: Lab, panel: Locator) -> None:
    """Show the usage of a run over time, in both themes and at the width of a phone."""
    panel.locator(".fd-system > summary").click()
    expect(panel.locator(".fd-system .fd-chart").first).to_be_visible(timeout=30_000)
    for theme in THEMES:
        choose_theme(lab, theme)
        assert_accessible(lab)
        lab.page.set_viewport_size(PHONE)
        wait_until(lambda: panel.evaluate(CUT_OFF) == [], 30)
        assert_no_faults(lab, PARTS)
        panel.locator(".fd-system").scroll_into_view_if_needed()
        lab.shoot(f"system-{theme.split()[-1].lower()}")
        lab.page.set_viewport_size(DESKTOP)
    # JupyterLab keeps the shares of the panel and the notebook, of which the notebook's was small on the phone.
    narrow(lab)


def compare_and_filter(lab: Lab, panel: Locator) -> None:
    """Show two runs in one chart, and search for a run that does not exist."""
    rows = panel.get_by_role("list", name="Runs")
    expect(rows.locator('.fd-status[data-status="finished"]')).to_have_count(2, timeout=120_000)
    for box in rows.get_by_role("checkbox").all():
        box.check()
    panel.get_by_role("button", name="Compare (2)").click()
    loss = panel.locator(".fd-chart", has_text="loss")
    expect(loss.locator(".fd-legend .fd-key")).to_have_count(2)
    assert_accessible(lab)
    panel.get_by_role("button", name="All runs").click()
    expect(panel.get_by_role("button", name="Compare (2)")).to_be_focused()
    panel.get_by_role("searchbox").fill("nothing of that name")
    expect(panel).to_contain_text("No run matches the filter")
    panel.get_by_role("searchbox").fill("digits untitled")
    expect(rows.get_by_role("checkbox")).to_have_count(2)
    panel.get_by_role("searchbox").fill("")


def assert_edited_as_a_plain_cell(lab: Lab) -> None:
    """Check that a distributed cell is highlighted, and that JupyterLab completes names from earlier cells in it."""
    expect(lab.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)
    lab.cell(5).locator(".cm-content").click()
    lab.page.keyboard.press("Control+End")
    offered = lab.page.locator(".jp-Completer-item")

    def asked() -> bool:
        lab.page.keyboard.press("Tab")
        with suppress(Late):
            offered.first.wait_for(timeout=3000)
        return offered.count() > 0

    # JupyterLab stops waiting before the kernel's first reply arrives, so press Tab repeatedly.
    wait_until(asked, 60)
    for name in ("the_answer", "the_question"):
        expect(offered.filter(has_text=name)).to_be_visible()
    lab.shoot("completion")
    lab.page.keyboard.press("Escape")
    colours = lab.cell(3).evaluate(TOKENS, 0)
    assert len(colours) == 3
    assert all(colours)
    assert lab.cell(4).evaluate(TOKENS, 1) == colours


@pytest.mark.timeout(400)
def test_a_new_user_trains_without_magics(hub: RunningHub, lab: Lab):
    lab.log_in("agnesi")
    lab.start_server("agnesi", "lean")
    lab.new_notebook()
    panel = open_panel(lab)
    expect(panel).to_contain_text("No cluster yet")

    panel.get_by_role("button", name="Start a cluster").click()
    form = panel.get_by_role("form", name="Start a cluster")
    form.get_by_label("Workers").fill("2")
    lab.shoot("panel-form")
    assert_accessible(lab)
    form.get_by_role("button", name="Start", exact=True).click()
    cluster = panel.get_by_role("region", name="Cluster main")
    expect(cluster.get_by_role("progressbar").first).to_be_visible()
    panel = reload(lab)
    expect(cluster).to_contain_text("2 workers", timeout=90_000)
    expect(cluster.locator(".fd-status").first).to_have_text("ready", timeout=90_000)

    panel.get_by_role("button", name="Insert training cell").click()
    expect(lab.cell(1)).to_contain_text("%%distributed_train")
    save(lab)
    panel = reload(lab)
    expect(lab.cell(1)).to_contain_text("%%distributed_train")
    expect(lab.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)
    lab.run_all()
    chart = lab.cell_with("%%distributed_train")
    wait_for_points(chart, "loss", 10, 120)
    show_tab(panel, "Runs")
    panel.get_by_role("list", name="Runs").get_by_role("button", name=re.compile("^digits")).click()
    expect(panel.locator(".fd-chart", has_text="loss").locator("path.fd-mean").first).to_be_visible()
    expect(chart.locator(".fd-status")).to_have_text("finished", timeout=120_000)
    expect(panel.get_by_role("heading", name="digits")).to_be_visible()
    expect(panel.locator(".fd-detail .fd-status").first).to_have_text("finished")
    lab.shoot("panel-run")
    assert_accessible(lab)
    show_system(lab, panel)
    with lab.page.expect_download() as download:
        panel.get_by_role("link", name="Download CSV").click()
    assert download.value.path().read_text(encoding="utf-8").count("\n") > 2 * points(chart, "loss")

    panel.get_by_role("button", name="All runs").click()
    lab.run_cell(1)
    compare_and_filter(lab, panel)
    with served(hub, "agnesi"):
        assert_accessible_in_all_tabs(lab, "ended")
    show_tab(panel, "Clusters")
    expect(panel.get_by_role("button", name="led by Untitled.ipynb")).to_be_visible()
    cluster.get_by_role("button", name="Scale main").click()
    scale = cluster.get_by_role("form", name="Scale main")
    scale.get_by_label("Workers").fill("3")
    scale.get_by_role("button", name="Apply").click()
    expect(cluster).to_contain_text("3 ranks", timeout=90_000)
    panel = reload(lab)
    expect(cluster).to_contain_text("3 ranks")

    cluster.get_by_role("button", name="Stop main").click()
    dialog = lab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("the variables on them are lost")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    dialog.get_by_role("button", name="Stop").click()
    expect(panel).to_contain_text("No cluster yet", timeout=60_000)
    panel = reload(lab)
    expect(panel).to_contain_text("No cluster yet")
    assert hub.api(hub.token_for("agnesi"), "GET", "/hub/api/users/agnesi").json()["servers"].keys() == {""}


def test_shift_enter_runs_the_first_inserted_cell(hub: RunningHub, lab: Lab):
    lab.log_in("lovelace")
    lab.start_server("lovelace", "lean")
    lab.new_notebook()
    panel = open_panel(lab)
    panel.get_by_role("button", name="Insert training cell").click()
    expect(lab.cell(1)).to_contain_text("%%distributed_train")
    lab.page.keyboard.press("Shift+Enter")
    expect(lab.cell(0).locator(".jp-InputPrompt")).to_have_text("[1]:", timeout=90_000)
    expect(lab.cell(0).locator(".jp-OutputArea-output[data-mime-type*=stderr]")).to_have_count(0)
    expect(lab.cell(1).locator(".jp-InputPrompt")).to_have_text("[ ]:")
    expect(lab.cell(1)).to_have_class(re.compile("jp-mod-active"))
    hub.browser("lovelace").stop_notebook()


# tests/browser/test_first_notebook.py reloads the page during a run.
@pytest.mark.release
@pytest.mark.timeout(400)
def test_a_run_is_shown_live_after_the_browser_reconnects(hub: RunningHub, lab: Lab):
    # The training lasts long enough for all checks, even on a slow machine.
    cells = START.format("none"), CELL.replace("290", "1200"), NAMES, PLAIN, f"%%distributed_train\n{PLAIN}", ASKING
    write_notebook(home_of(hub, "kovalevskaya") / "survivor.ipynb", *cells)
    lab.log_in("kovalevskaya")
    lab.start_server("kovalevskaya", "lean")
    lab.open_notebook("kovalevskaya", "survivor.ipynb")
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=90_000)
    assert_edited_as_a_plain_cell(lab)
    wait_for_points(lab.run_cell(1), "loss", 5)

    # The new page executes no cell, but shows the run.
    lab.reopen()
    lab.page.goto(url_of(hub.url, "/user/kovalevskaya/lab/tree/survivor.ipynb"))
    expect(lab.page.locator(".fd-cell-mark")).to_be_visible(timeout=60_000)
    expect(lab.page.locator(".fd-statusbar")).to_contain_text("2 ranks")
    lab.page.locator(".fd-cell-mark").click()
    panel = lab.page.locator("#farandole-panel")
    expect(panel.locator(".fd-detail .fd-status").first).to_have_text("running")
    seen = points(panel, "loss")
    wait_for_points(panel, "loss", seen + 5)
    lab.shoot("panel-live")
    panel = reload(lab)
    expect(panel.locator(".fd-detail .fd-status").first).to_have_text("running")
    expect(lab.page.locator(".fd-cell-mark")).to_be_visible(timeout=60_000)
    wait_for_points(panel, "loss", seen + 6)
    assert_accessible(lab)

    # The log of a worker is shown, a killed rank is marked as dead, and the end of the run is shown.
    show_tab(panel, "Clusters")
    worker = panel.get_by_role("listitem", name="main-w1")
    expect(worker).to_contain_text("rank 1")
    expect(worker.get_by_role("meter", name="Memory")).to_be_visible()
    worker.get_by_role("button", name="Log of main-w1").click()
    expect(worker.get_by_role("log")).to_contain_text(re.compile(r"\w"))
    kernel_of(hub, "kovalevskaya", "main-w1").send_signal(signal.SIGKILL)
    expect(worker).to_contain_text("rank 1 is dead", timeout=60_000)
    expect(worker).not_to_contain_text("computing")
    ready = panel.locator(".fd-cluster > .fd-row > .fd-status")
    assert ready.evaluate(TONE) == panel.evaluate("panel => getComputedStyle(panel).getPropertyValue('--fd-good')")
    lab.shoot("panel-dead")
    panel = reload(lab)
    expect(worker).to_contain_text("rank 1 is dead")
    for theme in THEMES:
        choose_theme(lab, theme)
        assert_accessible(lab)
    panel.get_by_role("button", name="Stop main").click()
    expect(lab.page.get_by_role("dialog")).to_contain_text("A run is active on this cluster")
    assert_no_faults(lab, ".jp-Dialog")
    lab.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    # The other rank continues alone, so the user ends the run.
    show_tab(panel, "Runs")
    panel.get_by_role("button", name="Stop the run").click()
    expect(panel.locator(".fd-detail .fd-status").first).to_have_text("interrupted", timeout=60_000)
    expect(panel.get_by_role("row", name="main-w1")).to_contain_text("dead")
    expect(lab.page.locator(".fd-cell-mark")).to_have_count(0)
