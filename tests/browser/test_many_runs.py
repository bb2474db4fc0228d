"""Tests that the page of runs stays small: with thousands of runs, and during a long run with many series."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.store import RunStore
from playwright.sync_api import expect

from tests.browser.lab import wait_for_points, write_notebook
from tests.browser.test_reattach import home_of
from tests.browser.test_runs_page import PAGE, names, open_page, sort

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from playwright.sync_api import CDPSession, Locator, Page, Response, WebSocket

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

COUNT = 5_000
POINTS = 100_000
LEAST, SHARP = 0.25, 50_001
"""The smallest loss of the long run, and the step that reports it. All other losses are larger."""
TEMPLATE_LOSS = 0.123456
METRICS = {f"metric_{number:02}": 700.5 + number for number in range(19)}
CONFIG = {"lr": 0.1, **{f"option_{number}": number for number in range(9)}}
"""All runs have these series besides their loss, and these hyper-parameters. The page shows the first of them."""
EVERY = 1_000
"""Of the long run, only one report of this many has all series."""
MOST_BYTES = 200_000
MOST_NODES = 5_000
READ_MS = 240_000

START = "%load_ext farandole\n%cluster start --local --ranks 8 --backend none"
STEADY = """\
%%distributed_train --name steady
import time
import farandole as fd

end, step = time.time() + 660, 0
while time.time() < end:
    fd.report(step=step, **{f"series_{number:02}": 1 / (step + number + 1) for number in range(20)})
    step += 1
    time.sleep(0.2)
"""
FIRST_MINUTE, LAST_MINUTE = 2, 10
GROWTH = 1.1
MORE_BYTES = 8_000_000
"""The memory of a page may grow by a tenth and by this many bytes, because garbage is not collected evenly."""


class Traffic:
    """Counts the bytes that a page receives from the panel's API, uncompressed."""

    def __init__(self, page: Page) -> None:
        self._responses: list[Response] = []
        self._streamed = 0
        page.on("response", self._add)
        page.on("websocket", self._follow)

    def restart(self) -> None:
        """Count from zero."""
        self._responses, self._streamed = [], 0

    def total(self) -> int:
        """Return the number of bytes since the last restart."""
        return self._streamed + sum(len(response.body()) for response in self._responses)

    def _add(self, response: Response) -> None:
        if "/farandole/panel/" in response.url and response.request.method == "GET" and response.ok:
            self._responses.append(response)

    def _follow(self, socket: WebSocket) -> None:
        if "/farandole/panel/" in socket.url:
            socket.on("framereceived", self._receive)

    def _receive(self, frame: str | bytes) -> None:
        self._streamed += len(frame.encode() if isinstance(frame, str) else frame)


def write_finished(store: RunStore, name: str, losses: Iterable[float]) -> Path:
    """Write a finished run of one rank, which has reported these losses, and return its folder."""
    run = store.create(code="", backend="none", size=1, workers=["c-w0"], name=name, config=CONFIG)
    for step, loss in enumerate(losses):
        values = {"loss": loss} if step % EVERY else {"loss": loss, **METRICS}
        run.add_records(0, report_to_json(Report(rank=0, time=time.time(), step=step, values=values)))
    run.finish(Status.FINISHED)
    return run.folder


def copy_run(folder: Path, store: Path, count: int) -> None:
    """Write copies of the run in ``folder``, each with its own id, name and loss. The oldest has the smallest loss."""
    texts = {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}
    for number in range(count):
        copy = store / f"20260101-{number:06d}-abcd"
        for place in sorted({path.parent for path in texts}):
            (copy / place).mkdir(parents=True)
        # Neighbouring runs have quite different losses, and no two runs have the same.
        loss = str(1 + number * 2_654_435_761 % count / count)
        for path, text in texts.items():
            own = text.replace(folder.name, copy.name).replace("template", f"run-{number}")
            (copy / path).write_text(own.replace(str(TEMPLATE_LOSS), loss))


def write_runs(store: Path, scratch: Path) -> None:
    """Write many short runs and a long one, which is the newest."""
    copy_run(write_finished(RunStore(scratch), "template", [TEMPLATE_LOSS]), store, COUNT)
    write_finished(RunStore(store), "long", (LEAST if step == SHARP else 5.0 for step in range(POINTS)))


def nodes(page: Locator) -> int:
    return int(page.evaluate("page => page.querySelectorAll('*').length"))


def check_added_columns(page: Locator, traffic: Traffic) -> None:
    """Show a series and a hyper-parameter that are not shown at first. Their values are fetched then."""
    first = page.locator("tbody tr").first
    expect(first).not_to_contain_text("718.5")
    expect(page.get_by_role("columnheader", name="option_8")).to_have_count(0)
    page.locator("summary", has_text="Columns").click()
    traffic.restart()
    page.get_by_role("checkbox", name="metric_18, last").check()
    page.get_by_role("checkbox", name="option_8").check()
    page.locator("summary", has_text="Columns").press("Escape")
    expect(first).to_contain_text("718.5")
    expect(page.get_by_role("columnheader", name="option_8", exact=True)).to_be_visible()
    assert 0 < traffic.total() <= 2 * MOST_BYTES


@pytest.mark.release
@pytest.mark.timeout(600)
def test_the_first_of_5_000_runs_are_small_and_the_best_is_found(hub: RunningHub, lab: Lab, tmp_path: Path) -> None:
    write_runs(home_of(hub, "shannon") / "farandole" / "runs", tmp_path / "scratch")
    traffic = Traffic(lab.page)
    lab.log_in("shannon")
    lab.start_server("shannon", "lean")
    lab.page.locator(".jp-LauncherCard").first.wait_for()
    traffic.restart()
    page = open_page(lab)
    expect(names(page).first).to_have_text("long", timeout=60_000)
    assert 0 < traffic.total() <= MOST_BYTES
    assert nodes(page) < MOST_NODES

    sort(page, "loss, lowest", "ascending")
    expect(page.get_by_text(f"{COUNT + 1} runs", exact=True)).to_be_visible(timeout=READ_MS)
    expect(names(page).nth(0)).to_have_text("long")
    expect(names(page).nth(1)).to_have_text("run-0")
    expect(page.locator("tbody tr").first).to_contain_text(str(LEAST))
    sort(page, "loss, lowest", "descending")
    expect(names(page).first).not_to_have_text("long")
    sort(page, "loss, lowest", "ascending")
    expect(names(page).first).to_have_text("long")
    assert nodes(page) < MOST_NODES
    check_added_columns(page, traffic)
    lab.shoot("many-runs")


def heap(session: CDPSession) -> int:
    """Return the size of the page's JavaScript objects in bytes, after a collection of garbage."""
    session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return int(next(metric["value"] for metric in metrics if metric["name"] == "JSHeapUsedSize"))


@pytest.mark.release
@pytest.mark.timeout(1_200)
def test_the_memory_of_the_page_stays_flat_during_a_long_run(hub: RunningHub, lab: Lab) -> None:
    home = home_of(hub, "lamarr")
    write_notebook(home / "steady.ipynb", START, STEADY)
    lab.log_in("lamarr")
    lab.start_server("lamarr", "lean")
    lab.open_notebook("lamarr", "steady.ipynb")
    expect(lab.run_cell(0)).to_contain_text("8 ranks", timeout=180_000)
    begun = time.monotonic()
    wait_for_points(lab.run_cell(1), "series_00", 5, 120)
    page = open_page(lab)
    names(page).first.click()
    expect(page.get_by_role("heading", name="steady")).to_be_visible()
    expect(page.locator(".fd-chart", has_text="series_00").first).to_be_visible()

    session = lab.page.context.new_cdp_session(lab.page)
    session.send("Performance.enable")
    session.send("HeapProfiler.enable")
    sizes = []
    for minute in (FIRST_MINUTE, LAST_MINUTE):
        # The page's memory is compared at these times, so the test waits for the clock and not for an event.
        lab.page.wait_for_timeout(max(0.0, begun + 60 * minute - time.monotonic()) * 1_000)
        sizes.append(heap(session))
    lab.shoot("steady")
    [run] = (home / "farandole" / "runs").glob("2*")
    assert json.loads((run / "run.json").read_text())["status"] == "running"
    assert (run / "metrics" / "rank-7.jsonl").read_bytes().count(b"\n") > 1_000
    first, last = sizes
    assert last <= GROWTH * first + MORE_BYTES, sizes
    expect(lab.page.locator(PAGE)).to_be_visible()
