"""Tests that a worker's address on the hub leads browsers to a page, and that the page's links work."""

from __future__ import annotations

import re

from hub.process import local_session
from tests.clients.hosts import url_of
from tests.hub import RunningHub

USER = "vera"
WORKER = f"/user/{USER}/page-w0"
SECONDS = 60


def test_a_workers_address_leads_to_a_page_with_links_that_work(hub: RunningHub) -> None:
    notebook = hub.start_notebook(USER)
    hub.start_worker(hub.token_for(USER), USER, "page-w0")
    session = hub.browser(USER)._session
    address = url_of(hub.url, WORKER)
    page = session.get(f"{address}/", timeout=SECONDS)
    assert (page.status_code, page.url) == (200, f"{address}/farandole/page")
    assert "Worker 0 of cluster page" in page.text
    assert "<script" not in page.text
    server, home = re.findall('href="([^"]+)"', page.text)
    assert url_of(hub.url, server) == f"{notebook}/"
    assert session.get(url_of(hub.url, server), timeout=SECONDS).status_code == 200
    home_page = session.get(home if home.startswith("http") else f"{hub.url}{home}", timeout=SECONDS)
    assert home_page.url == f"{hub.url}/hub/home"
    assert "page-w0" in home_page.text

    stranger = local_session().get(f"{address}/farandole/page", timeout=SECONDS)
    assert "/hub/login" in stranger.url
    other = hub.browser("mallory")._session.get(f"{address}/farandole/page", timeout=SECONDS)
    assert other.status_code in {403, 404}
    assert "of cluster page" not in stranger.text + other.text
