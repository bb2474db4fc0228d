"""Tests the charts that compare two runs: their downloads, zoom, axes, scale, smoothing and shared reading.

The test writes the runs itself, as test_runs_page.py does.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.store import RunStore
from playwright.sync_api import expect

from tests.browser.lab import THEMES, assert_usable, choose_theme, hide_side_bar
from tests.browser.test_reattach import home_of
from tests.browser.test_runs_page import PAGE, names, open_page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Locator

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

USER = "mirzakhani"
STEPS, EPOCHS = 40, 4
SERIES = "loss", "accuracy"
RUNS: dict[str, dict[str, Callable[[int], float]]] = {
    "slow": {"loss": lambda step: 2 - step / 32, "accuracy": lambda step: step / 100},
    "fast": {"loss": lambda step: 1 - step / 64, "accuracy": lambda step: step / 50},
}
LEFT, RIGHT = 50, 10
"""The space beside the lines of a chart, in pixels, as in plot.ts."""
SVG = "{http://www.w3.org/2000/svg}"
PNG = b"\x89PNG\r\n\x1a\n"


def write_run(store: Path, name: str) -> None:
    """Write a finished run of one rank, which has reported both series ten times a second."""
    run = RunStore(store).create(code=f"name = {name!r}\n", backend="none", size=1, workers=["main-w0"], name=name)
    for step in range(STEPS):
        values = {series: value(step) for series, value in RUNS[name].items()}
        epoch = step * EPOCHS // STEPS
        report = Report(rank=0, time=run.started + step / 10, step=step, epoch=epoch, values=values)
        run.add_records(0, report_to_json(report))
    run.finish(Status.FINISHED)


@dataclass(frozen=True)
class Chart:
    """The chart of a series in the page of runs."""

    lab: Lab
    series: str

    @property
    def root(self) -> Locator:
        return self.lab.page.locator(f'{PAGE} .fd-chart:has(strong[title="{self.series}"])')

    @property
    def svg(self) -> Locator:
        return self.root.locator("svg[role=img]")

    @property
    def lines(self) -> Locator:
        return self.root.locator("path.fd-mean")

    @property
    def reset(self) -> Locator:
        """The button that shows the whole axis again."""
        return self.root.get_by_role("button", name=f"Show the whole axis of {self.series}")

    def download(self, kind: str) -> tuple[str, bytes]:
        """Download the chart from its menu, and return the name and the content of the file."""
        self.root.get_by_label(f"Download the chart of {self.series}").click()
        with self.lab.page.expect_download() as found:
            self.root.get_by_role("button", name=kind, exact=True).click()
        return found.value.suggested_filename, found.value.path().read_bytes()

    def table(self) -> list[dict[str, str]]:
        """Return the rows of the chart's CSV file."""
        name, content = self.download("CSV")
        assert name == f"{self.series}.csv"
        return list(csv.DictReader(content.decode().splitlines()))

    def point(self, step: float) -> tuple[float, float]:
        """Return the place of a step on the page, in pixels. The whole axis must be visible."""
        self.svg.scroll_into_view_if_needed()
        box = self.svg.bounding_box()
        assert box
        share = step / (STEPS - 1)
        return box["x"] + LEFT + (box["width"] - LEFT - RIGHT) * share, box["y"] + box["height"] / 2

    def drag(self, first: float, last: float) -> None:
        """Zoom into the steps between two steps with the mouse."""
        mouse = self.lab.page.mouse
        (left, top), (right, _) = self.point(first), self.point(last)
        mouse.move(left, top)
        mouse.down()
        mouse.move(right, top, steps=5)
        mouse.up()

    def label(self, name: str) -> Locator:
        """Return the label of the x axis if it has this name."""
        return self.svg.locator("text").filter(has_text=re.compile(f"^{name}$"))


def numbers(table: list[dict[str, str]], run: str, column: str) -> list[float]:
    """Return the numbers of a run in a column of a CSV file."""
    return [float(row[column]) for row in table if row["line"] == run]


def check_downloads(chart: Chart) -> None:
    """Check the files of a chart in all formats."""
    table = chart.table()
    assert list(table[0]) == ["line", "step", "value"]
    for run, reported in RUNS.items():
        assert numbers(table, run, "step") == list(range(STEPS))
        values = [reported[chart.series](step) for step in range(STEPS)]
        assert numbers(table, run, "value") == pytest.approx(values, rel=1e-5)
    assert len(table) == STEPS * len(RUNS)

    name, content = chart.download("SVG")
    picture = ET.fromstring(content)
    lines = [path for path in picture.iter(f"{SVG}path") if path.get("class") == "fd-mean"]
    assert (name, len(lines)) == (f"{chart.series}.svg", len(RUNS))
    assert all((line.get("d") or "").startswith("M") for line in lines)
    assert {chart.series, *RUNS} <= {text.text for text in picture.iter(f"{SVG}text")}

    name, content = chart.download("PNG")
    assert (name, content[:8]) == (f"{chart.series}.png", PNG)
    width, height = int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    assert width > 100
    assert height > 100
    assert len(content) > 1_000


def check_zoom(loss: Chart, accuracy: Chart) -> None:
    """Zoom in with the mouse and with keys. Both charts show the same part of the axis, as their files do."""
    loss.drag(10, 20.4)
    for chart in (loss, accuracy):
        expect(chart.reset).to_be_visible()
        steps = numbers(chart.table(), "slow", "step")
        assert steps == [step for step in range(STEPS) if steps[0] <= step <= steps[-1]]
        # A pixel is less than a step.
        assert steps[0] in {10, 11}
        assert steps[-1] == 20
    accuracy.reset.click()
    for chart in (loss, accuracy):
        expect(chart.reset).to_have_count(0)
        assert len(chart.table()) == STEPS * len(RUNS)
    accuracy.drag(5, 15)
    expect(loss.reset).to_be_visible()
    loss.svg.dblclick()
    expect(loss.reset).to_have_count(0)
    loss.svg.press("+")
    expect(accuracy.reset).to_be_visible()
    loss.svg.press("0")
    expect(accuracy.reset).to_have_count(0)


def check_axes(page: Locator, loss: Chart) -> None:
    """Show the epoch and the time on the x axis, and the step again."""
    axis = page.get_by_label("x axis")
    for value, label, last in (("epoch", "epoch", EPOCHS), ("time", "seconds", (STEPS - 1) / 10)):
        axis.select_option(value)
        expect(loss.label(label)).to_be_visible()
        places = numbers(loss.table(), "fast", label)
        assert places == sorted(places)
        assert places[0] == pytest.approx(0, abs=0.01)
        assert last - 0.2 <= places[-1] <= last + 0.01
    axis.select_option("reported")
    expect(loss.label("step")).to_be_visible()


def check_scale_and_smoothing(page: Locator, loss: Chart, accuracy: Chart) -> None:
    """Show the loss on a logarithmic scale, and smooth the lines of both charts."""
    before = loss.lines.first.get_attribute("d") or ""
    scale = page.get_by_role("button", name="Logarithmic scale for loss")
    scale.click()
    expect(scale).to_have_attribute("aria-pressed", "true")
    expect(loss.lines.first).not_to_have_attribute("d", before)
    scale.click()
    expect(loss.lines.first).to_have_attribute("d", before)

    smoothing = page.get_by_label("Smoothing as a number")
    smoothing.fill("0.9")
    for chart in (loss, accuracy):
        expect(chart.root.locator("path.fd-raw")).to_have_count(len(RUNS))
    expect(loss.lines.first).not_to_have_attribute("d", before)
    table = loss.table()
    smooth, raw = numbers(table, "slow", "smoothed"), numbers(table, "slow", "value")
    assert smooth[0] == pytest.approx(raw[0])
    # The loss falls, and its average follows.
    assert all(after > now for after, now in zip(smooth[1:], raw[1:], strict=True))
    smoothing.fill("0")
    expect(page.locator("path.fd-raw")).to_have_count(0)


def check_reading(page: Locator, loss: Chart, accuracy: Chart) -> None:
    """Read the values at a step with the mouse and with keys. Both charts show them."""
    mouse = loss.lab.page.mouse
    mouse.move(*loss.point(20))
    guides, tips = page.locator(".fd-guide"), page.locator(".fd-tip")
    expect(guides).to_have_count(2)
    for chart, slow, fast in ((loss, 1.375, 0.6875), (accuracy, 0.2, 0.4)):
        expect(chart.root.locator(".fd-tip > div")).to_have_text(["step 20", f"slow {slow}", f"fast {fast}"])
    mouse.move(1, 1)
    expect(guides).to_have_count(0)
    loss.svg.press("ArrowLeft")
    expect(tips).to_have_count(2)
    for tip in tips.all():
        expect(tip).to_contain_text(f"step {STEPS - 2}")
    loss.svg.press("ArrowRight")
    expect(tips.last).to_contain_text(f"step {STEPS - 1}")
    loss.svg.blur()
    expect(tips).to_have_count(0)


@pytest.mark.release
@pytest.mark.timeout(400)
def test_charts_of_two_runs_are_read_changed_and_downloaded(hub: RunningHub, lab: Lab) -> None:
    store = home_of(hub, USER) / "farandole" / "runs"
    for name in RUNS:
        write_run(store, name)
    lab.log_in(USER)
    lab.start_server(USER, "lean")
    lab.page.locator(".jp-LauncherCard").first.wait_for()
    page = open_page(lab)
    expect(names(page)).to_have_count(2)
    for name in RUNS:
        page.get_by_role("checkbox", name=f"Select {name}").check()
    page.get_by_role("button", name="Compare (2)").click()
    charts = [Chart(lab, series) for series in SERIES]
    for chart in charts:
        expect(chart.lines).to_have_count(len(RUNS))
        check_downloads(chart)
    check_zoom(*charts)
    check_axes(page, charts[0])
    check_scale_and_smoothing(page, *charts)
    check_reading(page, *charts)
    hide_side_bar(lab)
    for theme in THEMES:
        choose_theme(lab, theme)
        assert_usable(lab, PAGE, f"compare-{theme.split()[-1].lower()}")
