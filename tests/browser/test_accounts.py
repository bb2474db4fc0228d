"""The way of a new user to an account, in a browser: the administrator creates it, and the user opens the link."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.hub import RunningHub, run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

CONFIG = Path(__file__).parents[1] / "integration" / "accounts_config.py"
ADMIN_PASSWORD, PASSWORD = "a password for tests", "three quiet horses"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with run_hub(tmp_path_factory.mktemp("accounts"), config=CONFIG) as running:
        yield running


def log_in(page: Page, hub: RunningHub, name: str, password: str) -> None:
    page.goto(f"{hub.url}/hub/login?next=/hub/home")
    page.get_by_label("Username:").fill(name)
    page.get_by_label("Password:", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/hub/home")


def test_a_new_user_gets_an_account_with_a_link(hub: RunningHub, chromium: Browser, tmp_path: Path) -> None:
    with chromium.new_context(timezone_id="Asia/Bangkok", locale="en-GB") as admins, chromium.new_context() as graces:
        admin, grace = admins.new_page(), graces.new_page()
        log_in(admin, hub, "root", ADMIN_PASSWORD)
        admin.goto(f"{hub.url}/hub/admin")
        admin.get_by_role("link", name="Create their accounts").click()
        course = tmp_path / "course.csv"
        course.write_text("name;username\nGrace;grace\nRoot;root\nAlan;alan\n", encoding="utf-8")
        admin.get_by_label("Or a CSV file").set_input_files(course)
        create = admin.get_by_role("button", name="Create accounts")
        assert create.evaluate("button => { button.click(); return button.disabled; }")
        expect(admin.get_by_role("alert").filter(has_text="1 of 3 accounts")).to_contain_text(
            "Line 3: the name 'root' has"
        )
        until = admin.get_by_role("time")
        local = datetime.fromisoformat(until.get_attribute("datetime") or "").astimezone(ZoneInfo("Asia/Bangkok"))
        expect(until).to_have_text(f"{local:%Y-%m-%d %H:%M}")
        with admin.expect_download() as download:
            admin.get_by_role("link", name="Download as CSV").click()
        rows = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
        assert [row["username"] for row in rows if row["link"]] == ["grace", "alan"]

        grace.goto(rows[2]["link"])
        grace.goto(rows[0]["link"])
        expect(grace).to_have_url(f"{hub.url}/hub/set-password")
        grace.get_by_label("New password:", exact=True).fill(PASSWORD)
        grace.get_by_label("Confirm new password:").fill(PASSWORD)
        grace.get_by_role("button", name="Set password").click()
        expect(grace.get_by_role("alert")).to_contain_text("Your user name is grace.")
        expect(grace).to_have_url(f"{hub.url}/hub/save-password")
        grace.goto(rows[2]["link"])
        expect(grace.get_by_label("New password:", exact=True)).to_be_empty()
        log_in(grace, hub, "grace", PASSWORD)
        log = hub.process.log_path.read_text(encoding="utf-8")
        assert not [word for word in (rows[0]["link"].partition("#")[2], PASSWORD) if word in log]
