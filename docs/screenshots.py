"""Take the pictures of the documentation from a real run: `make screenshots`.

A hub starts as `make up` starts it, on a free port and in a temporary folder. Then a user logs in with Chromium, runs
the first notebook on two workers, and trains with the panel.
"""

from __future__ import annotations

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

from hub.process import HubProcess, processes_of
from hub.up import NOTEBOOK, stop_on_signals
from spawner_config.local import free_port
from spawner_config.settings import Settings
from tests.browser.lab import Lab, open_panel, points, show, show_tab, wait_for_points, write_notebook
from tests.conftest import CHROMIUM_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator

IMAGES = Path(__file__).with_name("images")
LARGEST = 200_000
"""Bytes of a picture."""
SIZE = {"width": 1280, "height": 820}
USER = "ada"
PATIENCE = 180
"""Seconds for each step; the machine may be busy."""
RUN_NOTEBOOK = "long-run.ipynb"
START_CELL = "%load_ext farandole\n%cluster start --workers 2 --backend none"
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


def take_pictures(lab: Lab, state: Path) -> None:
    """Do what the pictures show, one after the other."""
    lab.log_in(USER)
    lab.start_server(USER, "cpu")
    first_notebook(lab)
    panel_and_training_cell(lab)
    write_notebook(state / "homes" / USER / RUN_NOTEBOOK, START_CELL, RUN_CELL)
    panel = run_after_the_page_was_closed(lab)
    dead_rank(lab, panel, state)


def first_notebook(lab: Lab) -> None:
    """Run the first notebook and take its dashboard."""
    lab.open_notebook(USER, NOTEBOOK)
    lab.run_all()
    training = lab.cell_with("--name first-cnn")
    training.locator(".fd-status").wait_for(timeout=PATIENCE * 1000)
    wait_for_points(training, "accuracy", 6, PATIENCE)
    show(training.locator(".fd"))
    save(lab, "dashboard")
    expect(lab.cell_with("%cluster stop")).to_contain_text("is stopped", timeout=PATIENCE * 1000)


def panel_and_training_cell(lab: Lab) -> None:
    """Start a cluster in the panel, insert a training cell, run it and stop the cluster."""
    lab.page.goto(f"{lab.hub.url}/user/{USER}/lab?reset")
    lab.page.locator('.jp-LauncherCard[data-category="Notebook"]').first.click()
    expect(lab.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=PATIENCE * 1000)
    panel = open_panel(lab)
    start_cluster(lab, panel)
    panel.get_by_role("button", name="Insert training cell").click()
    expect(lab.cell(1)).to_contain_text("%%distributed_train")
    lab.run_all()
    chart = lab.cell_with("%%distributed_train")
    expect(chart.locator(".fd-status")).to_have_text("finished", timeout=PATIENCE * 1000)
    show_tab(panel, "Runs")
    panel.get_by_role("list", name="Runs").get_by_role("button", name=re.compile("^digits")).click()
    expect(panel.locator(".fd-chart", has_text="loss").locator("polyline.fd-mean").first).to_be_visible()
    save(lab, "panel-run")
    show_tab(panel, "Clusters")
    panel.get_by_role("button", name="Stop main").click()
    expect(panel).to_contain_text("No cluster yet", timeout=PATIENCE * 1000)


def start_cluster(lab: Lab, panel: Locator) -> None:
    """Fill in the form and wait until the cluster is ready."""
    panel.get_by_role("button", name="Start a cluster").click()
    form = panel.get_by_role("form", name="Start a cluster")
    form.get_by_label("Workers").fill("2")
    save(lab, "panel-form")
    form.get_by_role("button", name="Start", exact=True).click()
    cluster = panel.get_by_role("region", name="Cluster main")
    expect(cluster).to_contain_text("2 workers", timeout=PATIENCE * 1000)
    expect(cluster.locator(".fd-status").first).to_have_text("ready", timeout=PATIENCE * 1000)


def run_after_the_page_was_closed(lab: Lab) -> Locator:
    """Start a long run, close the page, open it again and show the run; return the panel."""
    # Close the notebook of the last picture: `Lab` takes the first notebook of the page.
    lab.page.goto(f"{lab.hub.url}/user/{USER}/lab?reset")
    lab.open_notebook(USER, RUN_NOTEBOOK)
    expect(lab.run_cell(0)).to_contain_text("2 ranks", timeout=PATIENCE * 1000)
    wait_for_points(lab.run_cell(1), "loss", 5, PATIENCE)
    lab.reopen()
    lab.page.goto(f"{lab.hub.url}/user/{USER}/lab/tree/{RUN_NOTEBOOK}")
    lab.page.locator(".fd-cell-mark").click(timeout=PATIENCE * 1000)
    panel = lab.page.locator("#farandole-panel")
    expect(panel.locator(".fd-detail .fd-status").first).to_have_text("running")
    wait_for_points(panel, "loss", points(panel, "loss") + 60, PATIENCE)
    save(lab, "panel-live")
    return panel


def dead_rank(lab: Lab, panel: Locator, state: Path) -> None:
    """Kill a rank of the run and show its worker."""
    show_tab(panel, "Clusters")
    worker = panel.get_by_role("listitem", name="main-w1")
    worker.get_by_role("button", name="Log of main-w1").click()
    expect(worker.get_by_role("log")).to_contain_text(re.compile(r"\w"))
    kill_rank(state, "main-w1")
    expect(worker).to_contain_text("rank 1 is dead", timeout=PATIENCE * 1000)
    save(lab, "panel-dead")


def kill_rank(state: Path, worker: str) -> None:
    """Kill the kernel of a worker."""
    for process in processes_of(state):
        named = process.environ().get("JUPYTERHUB_SERVER_NAME") == worker
        if named and "ipykernel_launcher" in " ".join(process.cmdline()):
            process.send_signal(signal.SIGKILL)


def save(lab: Lab, name: str) -> None:
    """Take a picture; raises ValueError if it is too large for the documentation."""
    path = IMAGES / f"{name}.png"
    lab.page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path}  {size / 1000:.0f} kB", flush=True)
    if size > LARGEST:
        raise ValueError(f"{path} has {size} bytes, more than {LARGEST}")


@contextmanager
def running_hub() -> Iterator[HubProcess]:
    """Run a hub on a free port, in a temporary folder, without the caller's settings."""
    with tempfile.TemporaryDirectory(prefix="farandole-screenshots-") as folder:
        hub = HubProcess(replace(Settings.from_environment({}), port=free_port(), state=Path(folder)))
        try:
            hub.wait_ready()
            yield hub
        finally:
            hub.stop()


def main() -> None:
    """Take all pictures."""
    stop_on_signals()
    chromium = shutil.which("chromium") or sys.exit("This needs chromium; `make screenshots` installs it.")
    os.environ.pop("FARANDOLE_RUNS", None)
    with running_hub() as hub, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS)
        page = browser.new_context(viewport=SIZE).new_page()
        page.set_default_timeout(PATIENCE * 1000)
        lab = Lab(hub, page)
        try:
            take_pictures(lab, hub.settings.state)
        except BaseException:
            lab.shoot("screenshots-failed")
            raise
        browser.close()


if __name__ == "__main__":
    main()
