"""Tests the path from the card in the launcher to a finished run, with the keyboard in the dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import THEMES, assert_usable, choose_theme

if TYPE_CHECKING:
    from tests.browser.lab import Lab


@pytest.mark.release
@pytest.mark.timeout(400)
def test_a_template_from_the_launcher_to_a_finished_run(lab: Lab):
    lab.log_in("terry")
    lab.start_server("terry", "lean")
    card = lab.page.locator(".jp-LauncherCard", has_text="Farandole: distributed training")
    dialog = lab.page.get_by_role("dialog")
    for theme in THEMES:
        choose_theme(lab, theme)
        card.click()
        expect(dialog.get_by_role("radio", name="Image classifier")).to_be_focused()
        assert_usable(lab, ".jp-Dialog-content", f"templates-{theme.split()[-1].lower()}")
        lab.page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
    card.click()
    expect(dialog.get_by_role("radio")).to_have_count(5)
    expect(dialog.get_by_role("radio", name="Image classifier")).to_be_focused()
    lab.page.keyboard.press("ArrowDown")
    expect(dialog.get_by_role("radio", name="Sequence model")).to_be_checked()
    assert dialog.get_by_role("radio").first.evaluate("input => getComputedStyle(input).appearance") == "auto"
    lab.page.keyboard.press("ArrowUp")
    lab.page.keyboard.press("Enter")

    expect(lab.page.get_by_role("tab", name="image-classifier.ipynb")).to_be_visible()
    expect(lab.page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=60_000)
    # One epoch is enough to follow the path to its end.
    lab.retype(lab.cell_with("CHANNELS = 32"), "EPOCHS = 10", "EPOCHS = 1")
    lab.run_all()
    training = lab.cell_with("--name image-classifier")
    expect(training.locator(".fd-status")).to_have_text("finished", timeout=150_000)
    expect(lab.cell_with("%cluster stop")).to_contain_text("cluster 'main' is stopped", timeout=60_000)
