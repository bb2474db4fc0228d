"""Tests for the layout of a cluster with Dask in the panel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.lab import THEMES, choose_theme, open_panel
from tests.browser.test_panel import assert_accessible

if TYPE_CHECKING:
    from playwright.sync_api import WebSocketRoute

    from tests.browser.lab import Lab

MESSAGE = (Path(__file__).parents[1] / "wire" / "clusters-dask.json").read_text(encoding="utf-8")


def replace_clusters(socket: WebSocketRoute) -> None:
    """Connect the page's stream to its server, and replace each message about clusters with the example."""
    server = socket.connect_to_server()
    server.on_message(lambda text: socket.send(MESSAGE if json.loads(text)["kind"] == "clusters" else text))


def test_tasks_and_memory_of_dask_are_readable_in_the_narrow_panel(lab: Lab):
    lab.page.route_web_socket(re.compile("/farandole/panel/events"), replace_clusters)
    lab.log_in("hopper")
    lab.start_server("hopper", "lean")
    panel = open_panel(lab)
    bar = panel.get_by_role("progressbar", name="Dask")
    expect(bar).to_have_attribute("aria-valuetext", "120 of 400 tasks, 8 running, 2 failed")
    expect(panel.get_by_role("group", name="Dask on main-w0")).to_contain_text("6 running, 24 waiting, 1,061 done")
    expect(panel.get_by_role("group", name="Dask on main-w1").get_by_role("note")).to_contain_text("little memory")
    for theme in THEMES:
        choose_theme(lab, theme)
        assert_accessible(lab)
        lab.shoot(f"panel-dask-{theme.split()[-1].lower()}")
