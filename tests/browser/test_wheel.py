"""Tests that the wheel installs the extension in JupyterLab and in Notebook 7 on a machine without Node.js."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from farandole.notebook.display import run_bundle
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.store import RunStore
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError
from playwright.sync_api import expect

from hub.process import wait_until
from tests.browser.lab import ARTIFACTS, points, wait_for_points, write_notebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
MENU_MS = 5000
END_SECONDS = 20
START = "%load_ext farandole\n%cluster start --local --ranks 2 --backend none"
RUN = """\
%%distributed_train --name live
import time
import farandole as fd

for step in range(2000):
    time.sleep(0.2)
    fd.report(step=step, loss=1 / (step + 1))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that contains only the wheel, JupyterLab and Notebook."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT / "extension"]
    subprocess.run(build, check=True)
    [wheel] = folder.glob("farandole-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    into = ["--python", folder / "env/bin/python", "install"]
    subprocess.run([*pip, *into, wheel, "jupyterlab>=4,<5", "notebook>=7,<8"], check=True)
    return folder / "env"


@pytest.fixture(params=["lab", "notebook"])
def page(request: pytest.FixtureRequest, bare: Path, tmp_path: Path, chromium: Browser) -> Iterator[Page]:
    """A notebook that is open in JupyterLab or Notebook 7. Its server has only the environment `bare`."""
    program = request.param
    write_notebook(tmp_path / "first.ipynb", "")
    write_notebook(tmp_path / "live.ipynb", START, RUN)
    write_kept(tmp_path)
    own = {"HOME": str(tmp_path), "PATH": str(bare / "bin"), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    assert shutil.which("node", path=own["PATH"]) is None
    command = [bare / "bin/jupyter", program, "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=own, stdout=log, stderr=log)
    try:
        # The server creates the file before it writes to it.
        wait_until(lambda: any(written(tmp_path / "runtime")) or server.poll() is not None, DEADLINE)
        assert server.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")
        [information] = (tmp_path / "runtime").glob("jpserver-*.json")
        about = json.loads(information.read_text(encoding="utf-8"))
        page = chromium.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(DEADLINE * 1000)
        where = {"lab": "lab/tree", "notebook": "notebooks"}[program]
        page.goto(f"{about['url']}{where}/first.ipynb?token={about['token']}")
        yield page
        page.close()
    finally:
        server.terminate()
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            # A server that is stopped during a request may hang, because a thread of anyio waits for the event loop.
            server.kill()
            server.wait()


def written(runtime: Path) -> list[int]:
    """Return the sizes of the files in which running servers say where they are."""
    return [one.stat().st_size for one in runtime.glob("jpserver-*.json")]


def write_kept(home: Path) -> None:
    """Write a notebook that shows two runs of earlier days, of which one has been deleted since."""
    write_notebook(home / "kept.ipynb", "1", "2")
    store = RunStore(home / "farandole" / "runs")
    notebook = json.loads((home / "kept.ipynb").read_text(encoding="utf-8"))
    for name, cell in zip(("kept", "deleted"), notebook["cells"], strict=True):
        run = store.create(code="", backend="none", size=1, workers=["w"], name=name)
        run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=1, values={"loss": 0.5})))
        run.finish(Status.FINISHED)
        cell["outputs"] = [{"output_type": "display_data", "data": run_bundle(run), "metadata": {}}]
    shutil.rmtree(run.folder)
    (home / "kept.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


def cell_of(page: Page, notebook: str, index: int) -> Locator:
    """Open another notebook, unless it is open, and return one of its cells."""
    if notebook not in page.url:
        page.goto(re.sub(r"\w+\.ipynb", notebook, page.url))
    return page.locator(".jp-Notebook .jp-Cell").nth(index)


@pytest.mark.timeout(400)
def test_a_kept_run_is_drawn_and_a_deleted_one_is_a_picture(page: Page) -> None:
    kept, deleted = (cell_of(page, "kept.ipynb", index) for index in (0, 1))
    expect(kept.locator(".fd-status")).to_have_text("finished", timeout=DEADLINE * 1000)
    expect(kept.locator(".fd-chart")).to_have_count(1)
    expect(deleted.locator("img[alt*=loss]")).to_be_visible()
    expect(deleted.locator(".fd-status")).to_have_count(0)
    page.screenshot(path=ARTIFACTS / f"kept-{'notebook' if '/notebooks/' in page.url else 'lab'}.png")


@pytest.mark.timeout(400)
def test_a_run_is_drawn_live_and_stopped(page: Page) -> None:
    start, run = (cell_of(page, "live.ipynb", index) for index in (0, 1))
    wait_until(lambda: _executed(page, start), DEADLINE)
    expect(start).to_contain_text("2 ranks", timeout=DEADLINE * 1000)
    page.keyboard.press("Shift+Enter")
    wait_for_points(run, "loss", 5)
    wait_for_points(run, "loss", points(run, "loss") + 5)
    expect(run.locator("img")).to_have_count(0)
    run.get_by_role("button", name="Stop", exact=True).click()
    expect(run.locator(".fd-status")).to_have_text("interrupted", timeout=DEADLINE * 1000)
    expect(run.locator(".fd-chart")).to_have_count(1)
    page.screenshot(path=ARTIFACTS / f"live-{'notebook' if '/notebooks/' in page.url else 'lab'}.png")


@pytest.mark.timeout(400)
def test_the_panel_exists_and_inserts_a_training_cell(page: Page) -> None:
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    if "/notebooks/" in page.url:
        open_in_notebook(page)
    else:
        page.locator('.jp-SideBar [data-id="farandole-panel"]').click()
    panel = page.locator("#farandole-panel")
    expect(panel).to_contain_text("There is no hub")
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"wheel-{'notebook' if '/notebooks/' in page.url else 'lab'}.png")
    panel.get_by_role("button", name="Insert training cell").click()
    expect(page.locator(".jp-Notebook")).to_contain_text("%cluster start --local --ranks 2")
    expect(page.locator(".jp-Notebook")).to_contain_text("%%distributed_train")
    # A server that is stopped while a kernel is starting may hang.
    wait_for_kernel(page)
    if "/notebooks/" in page.url:
        assert_message_on_the_page_of_files(page)


def _executed(page: Page, cell: Locator) -> bool:
    """Execute a cell, and return whether the page did so. It drops a cell while it connects to its kernel."""
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    try:
        expect(cell.locator(".jp-InputPrompt")).not_to_have_text("[ ]:", timeout=MENU_MS)
    except AssertionError:
        return False
    return True


def wait_for_kernel(page: Page) -> None:
    """Wait until the kernel of the open notebook is idle."""
    indicator = page.locator(".jp-Notebook-ExecutionIndicator")
    expect(indicator).to_have_attribute("data-status", "idle", timeout=DEADLINE * 1000)


def assert_message_on_the_page_of_files(page: Page) -> None:
    """Check the message that Notebook 7 shows if no notebook is open for the new cell."""
    page.goto(page.url.replace("/notebooks/first.ipynb", "/tree"))
    open_in_notebook(page)
    page.locator("#farandole-panel").get_by_role("button", name="Insert training cell").click()
    expect(page.get_by_text("Nothing was inserted")).to_be_visible()
    page.screenshot(path=ARTIFACTS / "wheel-tree.png")


def open_in_notebook(page: Page) -> None:
    """Open the panel from the menu, because Notebook 7 has no icon for the panel."""
    wait_until(lambda: _picked(page, "View", "Left Sidebar", re.compile("Farandole")), DEADLINE)


def _picked(page: Page, *names: str | re.Pattern[str]) -> bool:
    """Click these menu items in order, and return whether all were found. Menus are incomplete while the page loads."""
    try:
        for name in names:
            page.locator(".lm-MenuBar-itemLabel, .lm-Menu-itemLabel").get_by_text(name).click(timeout=MENU_MS)
    except PlaywrightTimeoutError:
        page.keyboard.press("Escape")
        return False
    return True
