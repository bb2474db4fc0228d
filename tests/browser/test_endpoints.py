"""Tests for the layout of the tab "Endpoints" with endpoints of all kinds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.lab import THEMES, choose_theme, open_panel, show_tab
from tests.browser.test_panel import assert_accessible

if TYPE_CHECKING:
    from playwright.sync_api import WebSocketRoute

    from tests.browser.lab import Lab

MESSAGE = (Path(__file__).parents[1] / "wire" / "endpoints.json").read_text(encoding="utf-8")
NAMES = [one["name"] for one in json.loads(MESSAGE)["endpoints"]]


def replace_endpoints(socket: WebSocketRoute) -> None:
    """Connect the page's stream to its server, and replace each message about endpoints with the example."""
    server = socket.connect_to_server()
    server.on_message(lambda text: socket.send(MESSAGE if json.loads(text)["kind"] == "endpoints" else text))


def test_endpoints_of_all_kinds_are_readable_in_the_narrow_panel(lab: Lab):
    lab.page.route_web_socket(re.compile("/farandole/panel/events"), replace_endpoints)
    lab.log_in("mirzakhani")
    lab.start_server("mirzakhani", "lean")
    panel = open_panel(lab)
    show_tab(panel, "Endpoints")
    expect(panel.locator(".fd-endpoint h3")).to_have_text(NAMES)
    expect(panel.get_by_role("group", name="Stream of calls")).to_contain_text("nats:///decisions.{label}")
    problem = panel.get_by_role("group", name="Stream of alarms").get_by_role("note")
    expect(problem).to_contain_text("does not answer; trying again")
    for theme in THEMES:
        choose_theme(lab, theme)
        assert_accessible(lab)
        lab.shoot(f"panel-streams-{theme.split()[-1].lower()}")
