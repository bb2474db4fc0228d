"""`make screenshots`: take the screenshots of the documentation from a real run.

This starts a hub as `make up` does, but on a free port and in a temporary folder. Users then log in with Chromium, one
after the other. They

- run the first notebook on two workers,
- look at the templates, train twice with the panel, and compare both runs on the page of runs,
- return to a run after closing its page, and read its log,
- run a cell that fails,
- save a model, serve it, and send a request to its endpoint,
- replay a season of typhoons as a stream,
- look at the page for operators.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect, sync_playwright

from hub.process import HubProcess, processes_of, wait_until
from hub.up import NOTEBOOK, stop_on_signals
from spawner_config.local import free_port
from spawner_config.settings import Settings
from tests.browser.lab import Lab, open_panel, points, show, show_tab, wait_for_points, write_notebook
from tests.browser.test_runs_page import PAGE, names, sort
from tests.conftest import CHROMIUM_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, ViewportSize

IMAGES = Path(__file__).with_name("images")
LARGEST = 200_000
"""The maximum size of a screenshot in bytes."""
SIZE: ViewportSize = {"width": 1280, "height": 820}
TALL: ViewportSize = {"width": 1280, "height": 1020}
"""A viewport that shows a training cell together with its dashboard."""
WIDE: ViewportSize = {"width": 1680, "height": 560}
"""A viewport that is wide enough for most columns of the table of runs."""
PANEL_WIDTH = 470
"""The width in pixels at which the panel's tables need no scroll bar."""
PATIENCE = 180
"""The timeout of each step in seconds, which is long because the machine may be busy."""
RUN_NOTEBOOK = "long-run.ipynb"
SERVICE_NOTEBOOK = "04-from-run-to-service.ipynb"
MAP_CHARACTERS = 180_000
"""A map has this many characters in base64 when it shows nearly half of the season."""
START_CELL = "%load_ext farandole\n%cluster start --workers 2 --backend none"
LOCAL_CELL = "%load_ext farandole\n%cluster start --local --ranks 2 --backend none"
FAILING_CELL = '%%distributed_train --name first-try\nopen("measurements.csv")'
SAVE_CELL = """\
import farandole as fd
import torch
fd.save_model(torch.nn.Linear(4, 3), "iris", example=torch.rand(1, 4), metrics={"accuracy": 0.97})
"""
SERVE_CELL = "%load_ext farandole\n%serve iris"
RUN_CELL = """\
%%distributed_train --name long-run
import math, random, time
import farandole as fd

for step in fd.track(range(2000), name="steps"):
    time.sleep(0.25)
    if step % 40 == 0:
        print("step", step)
    fd.report(step=step, loss=math.exp(-step / 100) * (1 + 0.1 * random.random()))
"""


def first_notebook(lab: Lab, user: str, _state: Path) -> None:
    """Run the first notebook and take a screenshot of its dashboard."""
    lab.open_notebook(user, NOTEBOOK)
    lab.run_all()
    training = lab.cell_with("--name first-cnn")
    training.locator(".fd-status").wait_for(timeout=PATIENCE * 1000)
    wait_for_points(training, "accuracy", 6, PATIENCE)
    lab.page.set_viewport_size(TALL)
    show(training.locator(".fd"))
    save(lab, "dashboard")
    expect(lab.cell_with("%cluster stop")).to_contain_text("is stopped", timeout=PATIENCE * 1000)


def panel_and_training_cell(lab: Lab, _user: str, _state: Path) -> None:
    """Start a cluster in the panel, insert a training cell, run it twice, and take screenshots of its runs."""
    choose_template(lab)
    lab.new_notebook()
    panel = open_panel(lab)
    widen_panel(lab)
    start_cluster(lab, panel)
    panel.get_by_role("button", name="Insert training cell").click()
    expect(lab.cell(1)).to_contain_text("%%distributed_train")
    lab.run_all()
    chart = lab.cell_with("%%distributed_train")
    expect(chart.locator(".fd-status")).to_have_text("finished", timeout=PATIENCE * 1000)
    show_tab(panel, "Runs")
    panel.get_by_role("list", name="Runs").get_by_role("button", name=re.compile("^digits")).click()
    wait_for_points(panel, "loss", 5, PATIENCE)
    save(lab, "panel-run")
    panel.get_by_role("button", name="All runs").click()
    lab.retype(lab.cell(1), "0.003", "0.0003")
    lab.run_cell(1)
    finished = panel.get_by_role("list", name="Runs").locator('.fd-status[data-status="finished"]')
    expect(finished).to_have_count(2, timeout=PATIENCE * 1000)
    page_of_runs(lab, panel)


def choose_template(lab: Lab) -> None:
    """Open the dialog of templates, take a screenshot of it, and close it."""
    lab.page.locator(".jp-LauncherCard", has_text="Farandole: distributed training").click()
    dialog = lab.page.get_by_role("dialog")
    expect(dialog.get_by_role("radio").first).to_be_focused()
    save(lab, "templates")
    dialog.get_by_role("button", name="Cancel").click()


def page_of_runs(lab: Lab, panel: Locator) -> None:
    """Sort the table of runs, compare both runs, and take a screenshot of each. The panel is closed to have room."""
    panel.get_by_role("button", name="All runs").click()
    lab.page.locator('.jp-SideBar [data-id="farandole-panel"]').click()
    page = lab.page.locator(PAGE)
    sort(page, "loss, lowest", "ascending")
    expect(names(page)).to_have_count(2)
    boxes = page.locator("tbody").get_by_role("checkbox").all()
    lab.page.set_viewport_size(WIDE)
    boxes[0].scroll_into_view_if_needed()
    save(lab, "runs-page")
    for box in boxes:
        box.check()
    page.get_by_role("button", name="Compare (2)").click()
    lab.page.set_viewport_size(TALL)
    show(page.get_by_role("region", name="Hyper-parameters"))
    save(lab, "runs-compare")


def start_cluster(lab: Lab, panel: Locator) -> None:
    """Fill in the panel's form, take a screenshot of the form, start the cluster and wait until it is ready."""
    panel.get_by_role("button", name="Start a cluster").click()
    form = panel.get_by_role("form", name="Start a cluster")
    form.get_by_label("Workers").fill("2")
    save(lab, "panel-form")
    form.get_by_role("button", name="Start", exact=True).click()
    cluster = panel.get_by_role("region", name="Cluster main")
    expect(cluster).to_contain_text("2 workers", timeout=PATIENCE * 1000)
    expect(cluster.locator(".fd-status").first).to_have_text("ready", timeout=PATIENCE * 1000)


def run_after_the_page_was_closed(lab: Lab, user: str, state: Path) -> None:
    """Start a long run, close and reopen its page, take a screenshot of the run, and kill one of its ranks."""
    write_notebook(state / "homes" / user / RUN_NOTEBOOK, START_CELL, RUN_CELL)
    lab.open_notebook(user, RUN_NOTEBOOK)
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=PATIENCE * 1000)
    wait_for_points(lab.run_cell(1), "loss", 5, PATIENCE)
    lab.reopen()
    lab.page.goto(f"{lab.hub.url}/user/{user}/lab/tree/{RUN_NOTEBOOK}")
    lab.page.locator(".fd-cell-mark").click(timeout=PATIENCE * 1000)
    panel = lab.page.locator("#farandole-panel")
    widen_panel(lab)
    expect(panel.locator(".fd-detail .fd-status").first).to_have_text("running")
    wait_for_points(panel, "loss", points(panel, "loss") + 60, PATIENCE)
    save(lab, "panel-live")
    panel.get_by_role("button", name="Open log").click()
    expect(lab.page.locator(".fd-full-log").get_by_role("log")).to_contain_text("step 40", timeout=PATIENCE * 1000)
    save(lab, "log")
    dead_rank(lab, panel, state)


def widen_panel(lab: Lab) -> None:
    """Drag the edge between the panel and the notebook until the panel is `PANEL_WIDTH` pixels wide."""
    edge = lab.page.locator("#jp-main-split-panel > .lm-SplitPanel-handle:not(.lm-mod-hidden)").first.bounding_box()
    if edge is None:
        raise LookupError("JupyterLab does not show the edge of the panel")
    mouse = lab.page.mouse
    mouse.move(edge["x"] + edge["width"] / 2, SIZE["height"] / 2)
    mouse.down()
    mouse.move(PANEL_WIDTH, SIZE["height"] / 2)
    mouse.up()


def dead_rank(lab: Lab, panel: Locator, state: Path) -> None:
    """Kill a rank of the run and take a screenshot of its worker in the panel."""
    show_tab(panel, "Clusters")
    worker = panel.get_by_role("listitem", name="main-w1")
    kill_rank(state, "main-w1")
    expect(worker).to_contain_text("rank 1 is dead", timeout=PATIENCE * 1000)
    save(lab, "panel-dead")


def kill_rank(state: Path, worker: str) -> None:
    """Kill the process of a worker's kernel."""
    for process in processes_of(state):
        named = process.environ().get("JUPYTERHUB_SERVER_NAME") == worker
        if named and "ipykernel_launcher" in " ".join(process.cmdline()):
            process.send_signal(signal.SIGKILL)


def failed_run(lab: Lab, user: str, state: Path) -> None:
    """Run a cell that fails, and take a screenshot of JupyterLab's notification."""
    write_notebook(state / "homes" / user / RUN_NOTEBOOK, LOCAL_CELL, FAILING_CELL)
    lab.open_notebook(user, RUN_NOTEBOOK)
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=PATIENCE * 1000)
    lab.run_cell(1)
    toast = lab.page.locator(".jp-Notification-Toast-error", has_text="first-try has failed")
    expect(toast).to_be_visible(timeout=PATIENCE * 1000)
    save(lab, "notification")


def served_model(lab: Lab, user: str, state: Path) -> None:
    """Serve a model, send its example in the panel, and take a screenshot of the answer."""
    write_notebook(state / "homes" / user / RUN_NOTEBOOK, SAVE_CELL, SERVE_CELL)
    lab.open_notebook(user, RUN_NOTEBOOK)
    lab.run_cell(0)
    expect(lab.run_cell(1)).to_contain_text("/serve-iris/", timeout=PATIENCE * 1000)
    panel = open_panel(lab)
    widen_panel(lab)
    show_tab(panel, "Endpoints")
    panel.get_by_role("button", name="Send a request to iris").click()
    form = panel.get_by_role("form", name="Request to iris")
    form.get_by_role("button", name="Send", exact=True).click()
    expect(form.get_by_role("group", name="Answer of iris")).to_be_visible()
    save(lab, "panel-endpoints")


def replayed_season(lab: Lab, user: str, _state: Path) -> None:
    """Run the notebook that replays a season, and take a screenshot of the map when many predictions have arrived."""
    lab.open_notebook(user, SERVICE_NOTEBOOK)
    lab.run_all()
    shown = lab.cell_with("season_map.draw(predictions)").locator("img")
    shown.wait_for(timeout=PATIENCE * 1000)
    wait_until(lambda: len(shown.get_attribute("src") or "") > MAP_CHARACTERS, PATIENCE)
    show(shown)
    save(lab, "season")
    expect(lab.cell_with("%serve stop typhoon-stream")).to_contain_text("no endpoint runs", timeout=PATIENCE * 1000)


def operators_page(lab: Lab, user: str, _state: Path) -> None:
    """Take a screenshot of the page for operators, which shows the servers of all users."""
    lab.page.goto(f"{lab.hub.url}/services/operators/")
    expect(lab.page.get_by_role("button", name=f"Stop all servers of {user}")).to_be_visible()
    save(lab, "operators")


OPERATOR = "olga"
STORIES = {
    "ada": first_notebook,
    "grace": panel_and_training_cell,
    "emmy": run_after_the_page_was_closed,
    "katherine": failed_run,
    "dorothy": served_model,
    "hypatia": replayed_season,
    OPERATOR: operators_page,
}
"""The users and the functions that perform their actions and take the screenshots."""


def take_pictures(browser: Browser, hub: HubProcess) -> None:
    """For each user: log in, start a server and perform the user's actions. If this fails, also take a screenshot."""
    for user, story in STORIES.items():
        with browser.new_context(viewport=SIZE) as context:
            context.set_default_timeout(PATIENCE * 1000)
            lab = Lab(hub, context.new_page())
            try:
                hide_other_extensions(hub.settings.state / "homes" / user)
                lab.log_in(user)
                lab.start_server(user, "cpu")
                story(lab, user, hub.settings.state)
            except BaseException:
                lab.shoot("screenshots-failed")
                raise


def hide_other_extensions(home: Path) -> None:
    """Disable the JupyterLab extensions that the tests install but that users do not have."""
    config = home / ".jupyter" / "labconfig" / "page_config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"disabledExtensions": {"ipyparallel-labextension": True}}), encoding="utf-8")


def save(lab: Lab, name: str) -> None:
    """Take a screenshot; raises ValueError if the file is too large for the documentation."""
    path = IMAGES / f"{name}.png"
    lab.page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path}  {size / 1000:.0f} kB", flush=True)
    if size > LARGEST:
        raise ValueError(f"{path} has {size} bytes, more than {LARGEST}")


@contextmanager
def running_hub() -> Iterator[HubProcess]:
    """Run a hub with default settings on a free port and in a temporary folder, until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="farandole-screenshots-") as folder:
        hub = HubProcess(replace(Settings.from_environment({}), port=free_port(), state=Path(folder)))
        try:
            hub.wait_ready()
            yield hub
        finally:
            hub.stop()


def main() -> None:
    """Take all screenshots."""
    stop_on_signals()
    chromium = shutil.which("chromium") or sys.exit("This needs chromium; `make screenshots` installs it.")
    os.environ.pop("FARANDOLE_RUNS", None)
    os.environ["FARANDOLE_OPERATORS"] = OPERATOR
    with running_hub() as hub, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS)
        take_pictures(browser, hub)
        browser.close()


if __name__ == "__main__":
    main()
