"""Tests for requests to the hub to publish a folder, with a real HTTP server in place of the hub."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from farandole.datasets.versions import hub as module
from farandole.datasets.versions.hub import publish_at_hub
from farandole.datasets.versions.publish import AT_HUB, PUBLISH_TO, publish
from farandole.exceptions import DataSetError, UsageError

DONE = {"state": "published", "version": "digits@3", "files": 1, "bytes": 2, "digest": "sha256:9c"}
COPYING = {"state": "copying"}


@pytest.fixture
def home(tmp_path):
    """A home with a folder to publish."""
    (tmp_path / "home" / "data" / "digits").mkdir(parents=True)
    (tmp_path / "home" / "data" / "digits" / "a.txt").write_text("42")
    return tmp_path / "home"


@contextmanager
def hub(*answers):
    """Run a server that gives these answers, pairs of a status and an object or bytes; None closes the connection."""
    left, requests = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            requests.append((self.command, self.path, self.headers["Authorization"], json.loads(body or "null")))
            if (answer := left.pop(0)) is None:
                return
            status, content = answer
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self):
            self.headers.add_header("Content-Length", "0")
            self.do_POST()

        def log_message(self, *_args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/hub/api"
        try:
            yield {"JUPYTERHUB_API_URL": url, "JUPYTERHUB_API_TOKEN": "secret", "JUPYTERHUB_USER": "a/da"}, requests
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("size", "space"), [(0, 16384), (16384, 16384), (20_000, 20480), (10**9, 1_000_001_536)])
def test_small_files_take_more_than_their_size(size, space):
    assert module._space(size) == space


def ask(home, environ, folder="data/digits"):
    return publish_at_hub(home / folder, "digits", environ=environ, sleep=lambda _seconds: None)


def test_the_hub_copies_and_says_which_version_it_is(home):
    with hub((202, COPYING), (200, COPYING), None, (200, DONE)) as (environ, requests):
        version, copied = ask(home, environ)
    assert (str(version), copied.files, copied.bytes, copied.digest) == ("digits@3", 1, 2, "sha256:9c")
    path = "/hub/api/farandole/users/a%2Fda/data-sets/digits"
    assert requests[0] == ("POST", path, "token secret", {"folder": str(home / "data" / "digits"), "bytes": 16384})
    assert {(method, where) for method, where, *_ in requests[1:]} == {("GET", path)}


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(403, {"message": "'ada' may not publish"})], "does not publish the folder: 'ada' may not publish"),
        ([(500, b"<html>")], "does not publish the folder: 500 Internal Server Error"),
        ([(202, COPYING), (404, {"message": "no"})], "the hub was restarted and no longer copies the folder"),
        ([(202, COPYING), (200, {"state": "failed", "message": "No space\nleft"})], r"not published: No space\?left"),
        ([(202, b"[]")], "sent an invalid answer"),
        ([(202, COPYING), (200, {"state": "published"})], "sent an invalid answer"),
        ([(202, COPYING), (200, {**DONE, "version": "digits"})], "sent an invalid answer"),
    ],
)
def test_an_answer_that_is_no_version_is_explained(home, answers, message):
    with hub(*answers) as (environ, _), pytest.raises(DataSetError, match=message):
        ask(home, environ)


def test_a_hub_that_does_not_come_back_is_explained(home, monkeypatch):
    monkeypatch.setattr(module, "RESTART_SECONDS", 0.0)
    with hub((202, COPYING), None) as (environ, _), pytest.raises(DataSetError, match="the hub does not answer"):
        ask(home, environ)


@pytest.mark.parametrize(
    ("make", "folder", "message"),
    [
        (lambda home: (home / "data" / "digits" / "link").symlink_to("/etc/passwd"), "data/digits", "'link'"),
        (lambda home: (home / "empty").mkdir(), "empty", "has no files"),
        (lambda home: (home / "new\nline").mkdir(), "new\nline", "not readable text"),
    ],
)
def test_a_folder_that_the_hub_cannot_copy_is_refused_at_once(home, make, folder, message):
    make(home)
    with pytest.raises(UsageError, match=message):
        ask(home, {}, folder)


def test_publish_asks_the_hub_if_the_hub_says_so(home, monkeypatch):
    monkeypatch.setenv(PUBLISH_TO, AT_HUB)
    with hub((202, COPYING), (200, DONE)) as (environ, _):
        for key, value in environ.items():
            monkeypatch.setenv(key, value)
        found = publish(home / "data" / "digits", "digits")
    assert (str(found.version), found.copied.digest) == ("digits@3", "sha256:9c")
