"""Tests that a user takes a snapshot in the panel, finds a deleted file in it, and gets the file back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import THEMES, choose_theme, open_panel, show_tab
from tests.browser.test_panel import CUT_OFF, assert_accessible
from tests.browser.test_reattach import home_of

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.lab import Lab
    from tests.hub import RunningHub

USER = "noether"
NARROW = 240
"""The width of a narrow left bar, in pixels."""


def look_at(lab: Lab, panel: Locator, name: str) -> None:
    """Check the panel in both themes, and that a narrow panel cuts nothing off. Save pictures with this name."""
    for theme in THEMES:
        choose_theme(lab, theme)
        assert_accessible(lab)
        lab.shoot(f"panel-{name}-{theme.split()[-1].lower()}")
    panel.evaluate("(panel, width) => { panel.style.width = `${width}px`; }", NARROW)
    assert panel.evaluate(CUT_OFF) == []
    lab.shoot(f"panel-{name}-narrow")
    panel.evaluate("panel => { panel.style.width = ''; }")


@pytest.mark.release
@pytest.mark.timeout(300)
def test_a_deleted_file_is_found_in_a_snapshot_and_restored(lab: Lab, hub: RunningHub):
    data = home_of(hub, USER) / "data"
    data.mkdir()
    for name in ("clicks.csv", "labels.csv", "a long name of a file with many words that does not fit.parquet"):
        (data / name).write_text(f"{name}\n" * 100)
        os.utime(data / name, (1_780_000_000, 1_780_000_000))
    lab.log_in(USER)
    lab.start_server(USER, "lean")
    panel = open_panel(lab)
    show_tab(panel, "Snapshots")
    expect(panel.get_by_text("No snapshot yet")).to_be_visible(timeout=60_000)
    panel.get_by_label("Message (optional)").fill("before cleaning")
    panel.get_by_role("button", name="Take a snapshot").click()
    row = panel.get_by_role("button", name="before cleaning")
    expect(row).to_contain_text("the oldest snapshot", timeout=60_000)
    look_at(lab, panel, "snapshots")

    (data / "clicks.csv").unlink()
    (data / "labels.csv").write_text("newer")
    row.click()
    panel.get_by_role("button", name="data/").click()
    clicks = panel.get_by_role("button", name="clicks.csv deleted since")
    expect(clicks).to_be_visible()
    # The keyboard alone reaches the file and its button.
    expect(panel.locator(".fd-crumbs [aria-current]")).to_be_focused()
    clicks.focus()
    lab.page.keyboard.press("Enter")
    look_at(lab, panel, "snapshot-files")
    panel.get_by_role("button", name="Restore clicks.csv", exact=True).press("Enter")
    expect(panel.get_by_text("Restored: ~/data/clicks.csv")).to_be_visible(timeout=60_000)
    assert (data / "clicks.csv").read_text() == "clicks.csv\n" * 100
    expect(panel.get_by_text("deleted since")).to_have_count(0)

    panel.get_by_role("button", name="labels.csv changed since").click()
    panel.get_by_role("button", name="Restore labels.csv", exact=True).click()
    dialog = lab.page.get_by_role("dialog")
    expect(dialog).to_contain_text("It was changed after the one in the snapshot.")
    lab.shoot("panel-snapshot-dialog")
    dialog.get_by_role("button", name="Keep both").click()
    expect(panel.get_by_text("Restored: ~/data/labels.")).to_be_visible(timeout=60_000)
    assert (data / "labels.csv").read_text() == "newer"
    assert sorted(path.read_text() for path in data.glob("labels.*.csv")) == ["labels.csv\n" * 100]

    show_versions(lab, panel)


def show_versions(lab: Lab, panel: Locator) -> None:
    """Open the earlier versions of a file from JupyterLab's file browser."""
    lab.page.locator('.jp-SideBar [data-id="filebrowser"]').click()
    listing = lab.page.locator(".jp-DirListing-content")
    listing.get_by_text("data", exact=True).dblclick()
    listing.get_by_text("labels.csv", exact=True).click(button="right")
    lab.page.locator(".lm-Menu-itemLabel").get_by_text("Earlier Versions…", exact=True).click()
    expect(panel.get_by_role("heading", name="Versions of labels.csv")).to_be_visible(timeout=60_000)
    expect(panel.get_by_role("list", name="Versions of labels.csv").get_by_role("listitem")).to_have_count(1)
    expect(panel.get_by_text("changed since")).to_be_visible()
    look_at(lab, panel, "snapshot-versions")
