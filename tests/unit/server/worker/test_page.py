"""Tests for the page that a browser shows for a worker's server."""

from html.parser import HTMLParser

import pytest
from farandole.server.worker.page import page

from tests.unit.server.test_senders import LOGIN, running

HUB = {
    "FARANDOLE_WORKER": "my-net-w12",
    "JUPYTERHUB_SERVICE_PREFIX": "/hubs/user/ada/my-net-w12/",
    "JUPYTERHUB_BASE_URL": "/hubs/",
    "JUPYTERHUB_HOST": "",
}


class Reader(HTMLParser):
    """Collects the tags, the links and the text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.links, self.text = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.text += data


def test_the_page_names_the_worker_and_links_to_the_notebook_server_and_the_hub():
    read = Reader(page(HUB))
    assert "Worker 12 of cluster my-net" in read.text
    assert "you lead it from a notebook" in read.text
    assert read.links == ["/hubs/user/ada/", "/hubs/hub/home"]
    assert "script" not in read.tags


def test_the_hub_may_have_a_host_of_its_own():
    own = {"JUPYTERHUB_HOST": "https://hub.example.org", "JUPYTERHUB_BASE_URL": "/"}
    assert Reader(page(HUB | own)).links == ["/hubs/user/ada/", "https://hub.example.org/hub/home"]


def test_a_local_worker_has_no_links():
    read = Reader(page({"FARANDOLE_WORKER": "early-w0"}))
    assert "Worker 0 of cluster early" in read.text
    assert read.links == []
    assert "Worker local" in Reader(page({})).text


def test_names_are_escaped():
    odd = {"FARANDOLE_WORKER": "<script>x</script>-w0", "JUPYTERHUB_SERVICE_PREFIX": '/user/"><script>/c-w0/'}
    read = Reader(page(HUB | odd))
    assert "script" not in read.tags
    assert "cluster <script>x</script>" in read.text
    assert read.links[0] == '/user/"><script>/'


@pytest.mark.parametrize("path", ["", "farandole/page"])
async def test_browsers_get_the_page_only_with_a_login(path, tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_WORKER", "main-w0")
    async with running("worker", tmp_path, monkeypatch) as server:
        async with server.session.get(path, headers=LOGIN) as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")
            assert answer.url.path == "/farandole/page"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "Worker 0 of cluster main" in await answer.text()
        server.session.cookie_jar.clear()
        async with server.session.get("farandole/page", allow_redirects=False) as answer:
            assert (answer.status, "/login?" in answer.headers["Location"]) == (302, True)
            assert "cluster" not in await answer.text()
