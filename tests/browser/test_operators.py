"""Tests for the operators' page in a browser: its look in both themes, its accessibility, and the keyboard."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.browser.lab import ARTIFACTS, AXE, FAULTS
from tests.clients.hosts import url_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.hub import RunningHub

LONG = f"Save <b>your</b> work. {'The machine moves to another room. ' * 10}".strip()
ZONE = "Asia/Kathmandu"
"""A time zone that differs from UTC by hours and minutes."""
USERS = ("bettina", "clara", "dora")


@pytest.fixture(scope="module")
def hub(operators_hub: RunningHub) -> Iterator[RunningHub]:
    """The hub on which olga is an operator, with a notebook server of each of `USERS` for the tests of this module."""
    for user in USERS:
        operators_hub.start_notebook(user, "lean")
    yield operators_hub
    for user in USERS:
        browser = operators_hub.browser(user)
        if browser.has_notebook():
            browser.stop_notebook()


def log_in(page: Page, hub: RunningHub, user: str, then: str) -> None:
    page.goto(f"{hub.url}/hub/login?next={then}")
    page.get_by_label("Username:").fill(user)
    page.get_by_label("Password:", exact=True).fill(hub.password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{hub.url}{then}")


def assert_accessible(page: Page) -> None:
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert page.evaluate(FAULTS, "body") == []


def test_an_operator_stops_a_server_with_the_keyboard(hub: RunningHub, chromium: Browser) -> None:
    ARTIFACTS.mkdir(exist_ok=True)
    with chromium.new_context(color_scheme="light") as olgas, chromium.new_context(timezone_id=ZONE) as claras:
        page, clara = olgas.new_page(), claras.new_page()
        log_in(page, hub, "olga", "/services/operators/")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert_accessible(page)
            page.screenshot(path=ARTIFACTS / f"operators-{scheme}.png", full_page=True)
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

        servers = page.locator("#servers + .scroll")
        users = servers.get_by_role("rowheader").all_inner_texts()
        assert users == sorted(users)
        assert set(USERS) <= set(users)
        servers.get_by_role("button", name="User").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        expect(servers.get_by_role("rowheader")).to_have_text(users[::-1])
        expect(page.get_by_role("columnheader", name="User").first).to_have_attribute("aria-sort", "descending")

        page.get_by_role("button", name="Stop the notebook server of clara").focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Stop the notebook server of clara")
        assert_accessible(page)
        page.keyboard.type("The machine restarts.")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_have_text("Stopped servers of clara: notebook.", timeout=60_000)

        log_in(clara, hub, "clara", "/hub/home")
        told = clara.get_by_text("olga stopped your notebook server. Reason: The machine restarts.")
        expect(told).to_be_visible()
        at = told.get_by_role("time").first
        local = datetime.fromisoformat(at.get_attribute("datetime") or "").astimezone(ZoneInfo(ZONE))
        # The date is left out unless the test runs over midnight.
        expect(at).to_have_text(re.compile(rf"^({local:%Y-%m-%d} )?{local:%H:%M}$"))


@pytest.mark.release
def test_an_open_jupyterlab_leads_to_the_reason(hub: RunningHub, chromium: Browser) -> None:
    with chromium.new_context() as olgas, chromium.new_context() as doras:
        page, lab = olgas.new_page(), doras.new_page()
        log_in(lab, hub, "dora", "/hub/home")
        lab.goto(url_of(hub.url, "/user/dora/lab"))
        expect(lab.locator(".lm-MenuBar-itemLabel", has_text="Kernel")).to_be_visible(timeout=60_000)
        log_in(page, hub, "olga", "/services/operators/")
        page.get_by_role("button", name="Stop the notebook server of dora").click()
        form = page.get_by_role("dialog")
        form.get_by_label("Text for the user:").fill("The machine moves.")
        form.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Stopped servers of dora: notebook.", timeout=60_000)

        # JupyterLab notices it with its next request for the list of kernels, and cannot read the hub's answer.
        lost = lab.get_by_role("dialog").filter(has_text="is not running")
        expect(lost).to_be_visible(timeout=120_000)
        with doras.expect_page() as opened:
            lost.get_by_role("button", name="Restart").click()
        text = "olga stopped your notebook server. Reason: The machine moves."
        expect(opened.value.get_by_text(text)).to_be_visible()


def leave_message(page: Page, user: str, text: str) -> None:
    page.get_by_role("button", name=f"Leave a message for {user}", exact=True).click()
    form = page.get_by_role("dialog")
    form.get_by_label("Text for the user:").fill(text)
    form.get_by_role("button", name="Leave message").click()
    expect(page.get_by_role("status")).to_have_text(f"Left a message for {user}.")


def test_an_open_jupyterlab_shows_the_messages_of_operators(hub: RunningHub, chromium: Browser) -> None:
    with chromium.new_context() as olgas, chromium.new_context() as bettinas:
        page, lab = olgas.new_page(), bettinas.new_page()
        log_in(lab, hub, "bettina", "/hub/home")
        lab.goto(url_of(hub.url, "/user/bettina/lab"))
        # The server has asked the hub for notices, and asks again after a minute.
        expect(lab.locator(".fd-statusbar")).to_contain_text("no cluster", timeout=60_000)
        log_in(page, hub, "olga", "/services/operators/")
        leave_message(page, "bettina", LONG)
        shown = lab.locator(".jp-Notification-Toast-warning")
        expect(shown).to_contain_text("message from olga: Save <b>your</b> work.", timeout=120_000)
        expect(shown.locator("b")).to_have_count(0)
        shown.get_by_role("button", name="Show the Text").click()
        dialog = lab.get_by_role("dialog").filter(has_text="Notice from olga")
        expect(dialog).to_contain_text(LONG)
        dialog.get_by_role("button", name="Close", exact=True).click()
        expect(dialog).to_have_count(0)
        expect(shown).to_be_visible()

        leave_message(page, "bettina", "Good bye.")
        lab.reload()
        # A loaded page asks at once, unless its server has not noticed yet that the last page is gone.
        expect(shown).to_contain_text("message from olga: Good bye.", timeout=120_000)
        expect(shown).to_have_count(1)
