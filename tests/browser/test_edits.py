"""Tests two browsers of one user that change the same run in the page of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.test_reattach import home_of
from tests.browser.test_runs_page import edit, open_page
from tests.clients.hosts import url_of
from tests.strange import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

    from tests.hub import RunningHub

USER = "meitner"
NAME, TAGS, NOTES = "Name of digits", "Tags of digits, separated by commas", "Notes of digits"


def begin_edit(page: Locator, label: str, text: str) -> Locator:
    """Open the field of a text, fill it without saving it, and return it."""
    page.get_by_role("button", name=f"Edit: {label}").click()
    field = page.get_by_role("textbox", name=label)
    expect(field).to_be_focused()
    field.fill(text)
    return field


def show_launcher(lab: Lab) -> None:
    expect(lab.page.locator(".jp-Launcher").first).to_be_visible(timeout=60_000)


@pytest.mark.timeout(300)
def test_two_browsers_do_not_replace_each_others_text(hub: RunningHub, lab: Lab, chromium: Browser):
    write_run(home_of(hub, USER) / "farandole" / "runs", name="digits")
    lab.log_in(USER)
    lab.start_server(USER, "lean")
    show_launcher(lab)
    with chromium.new_context(viewport={"width": 1400, "height": 900}) as context:
        other = Lab(hub, context.new_page())
        other.log_in(USER)
        other.page.goto(url_of(hub.url, f"/user/{USER}/lab"))
        show_launcher(other)
        own, theirs = open_page(lab), open_page(other)

        field = begin_edit(own, NOTES, "own notes")
        edit(theirs, NOTES, "their notes")
        field.press("Enter")
        expect(own.get_by_text("were changed elsewhere in the meantime, to 'their notes'")).to_be_visible()
        expect(field).to_have_value("own notes")
        lab.shoot("runs-page-changed-elsewhere")
        # A click elsewhere does not replace a text that the user may not have seen.
        own.get_by_role("heading", name="Runs", exact=True).click()
        expect(field).to_have_value("own notes")
        field.press("Enter")
        expect(field).to_have_count(0)
        expect(own.get_by_role("row", name="digits")).to_contain_text("own notes")

        field = begin_edit(own, TAGS, "own")
        edit(theirs, TAGS, "theirs")
        field.press("Enter")
        expect(own.get_by_text("were changed elsewhere in the meantime, to 'theirs'")).to_be_visible()
        field.press("Escape")
        expect(own.get_by_role("row", name="digits")).to_contain_text("theirs")

        # Changes of different texts are no conflict.
        field = begin_edit(own, TAGS, "theirs, own")
        edit(theirs, NAME, "best")
        field.press("Enter")
        expect(field).to_have_count(0)
        row = own.get_by_role("row", name="best")
        for text in ("own notes", "theirs", "own"):
            expect(row).to_contain_text(text)
