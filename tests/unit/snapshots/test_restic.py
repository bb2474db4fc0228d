"""Tests for how restic is run, and for how its failures end."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest
from farandole.exceptions import SnapshotError
from farandole.files.private import private_folder
from farandole.snapshots.connection import Repository
from farandole.snapshots.restic import RUNNING, Restic
from farandole.snapshots.snapshots import Snapshots

from tests.unit.snapshots.conftest import PASSWORD

DEADLINE = 60.0
HANGS = """
import sys
from farandole.snapshots.connection import Repository
from farandole.snapshots.restic import Restic

repository = Repository(url=f"rest:http://127.0.0.1:{sys.argv[1]}/", password="x")
Restic(lambda: repository, background=sys.argv[2] == "True").records("snapshots")
"""


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def locks(repository):
    return [each for each in (repository / "locks").iterdir() if "-tmp-" not in each.name]


def interrupt_with_data(repository):
    wait_for(lambda: any((repository / "data").glob("*/*")))
    raise KeyboardInterrupt


def test_neither_the_address_nor_the_password_is_visible(strange):
    secrets = {str(strange.repository).encode(), PASSWORD.encode()}
    restic = Restic(lambda: Repository(url=str(strange.repository), password=PASSWORD))
    with restic.running("snapshots") as output:
        [process] = RUNNING
        child = psutil.Process(process.pid)
        seen = "\0".join([*child.cmdline(), *child.environ().values()]).encode()
        output.stdout.read()
    assert not [secret for secret in secrets if secret in seen]


def test_without_restic_the_error_names_the_package(strange, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SnapshotError, match="restic is not installed on this server.*package `restic`"):
        strange.snapshots.list()


def test_variables_of_the_user_do_not_redirect_restic(strange, monkeypatch):
    monkeypatch.setenv("RESTIC_REPOSITORY", "/elsewhere")
    monkeypatch.setenv("RESTIC_PASSWORD_COMMAND", "false")
    assert len(strange.snapshots.list()) == 1


def test_restic_asks_the_proxy_of_its_hub_and_no_other(monkeypatch):
    asked = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Host"], self.headers["Authorization"]))
            self.send_error(404)

        def do_HEAD(self):
            self.do_GET()

        def log_message(self, *_args):
            pass

    for name, value in {"HTTP_PROXY": "http://127.0.0.1:1", "no_proxy": "*", "NO_PROXY": "*"}.items():
        monkeypatch.setenv(name, value)
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url, proxy = "rest:http://ada:token@hub.example.org/place/", f"http://127.0.0.1:{server.server_port}"
        try:
            with pytest.raises(SnapshotError, match="is damaged"):
                Restic(lambda: Repository(url=url, password=PASSWORD, proxy=proxy)).records("snapshots", "--no-lock")
        finally:
            server.shutdown()
            thread.join()
    login = base64.b64encode(b"ada:token").decode()
    assert set(asked) == {("http://hub.example.org/place/config", "hub.example.org", f"Basic {login}")}


@pytest.mark.parametrize("background", [True, False])
def test_restic_ends_with_its_process_and_yields_to_others_in_the_background(background):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE)
        script = subprocess.Popen([sys.executable, "-c", HANGS, str(listener.getsockname()[1]), str(background)])
        with script:
            connection, _ = listener.accept()
            [restic] = psutil.Process(script.pid).children()
            if background:
                assert restic.nice() == 19
                assert restic.ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
            script.kill()
        with connection:
            connection.settimeout(DEADLINE)
            while connection.recv(4096):
                pass


def test_a_restic_that_was_killed_is_explained():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rest:http://127.0.0.1:{silent.getsockname()[1]}/"
        restic = Restic(lambda: Repository(url=url, password=PASSWORD))
        with (
            pytest.raises(SnapshotError, match="restic was killed, probably because the memory of your server is used"),
            restic.running("snapshots", "--no-lock"),
        ):
            next(iter(RUNNING)).kill()


def test_an_interrupted_snapshot_leaves_no_lock(site):
    (site.home / "random").write_bytes(os.urandom(128 * 2**20))
    restic = Restic(lambda: Repository(url=str(site.repository), password=PASSWORD))
    with pytest.raises(KeyboardInterrupt), restic.running("backup", str(site.home)):
        interrupt_with_data(site.repository)
    assert locks(site.repository) == []
    assert site.snapshots.list() == []


def test_while_the_hub_removes_snapshots_others_can_be_read(site):
    (site.home / "file").write_text("x")
    taken = site.snapshots.take()
    # This command locks the repository, and then waits for a password.
    command = ["restic", "--repo", str(site.repository), "key", "passwd"]
    environment = {**os.environ, "RESTIC_PASSWORD": PASSWORD}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment) as pruning:
        try:
            wait_for(lambda: locks(site.repository))
            with pytest.raises(SnapshotError, match=r"is locked, because the hub removes old snapshots.*Try again"):
                site.snapshots.take()
            assert [one.short_id for one in site.snapshots.list()] == [taken.short_id]
        finally:
            pruning.kill()


def test_a_damaged_repository_is_reported_soon(site):
    (site.home / "file").write_bytes(os.urandom(2**20))
    site.snapshots.take()
    for pack in (site.repository / "data").glob("*/*"):
        pack.unlink()
    with pytest.raises(SnapshotError, match="is damaged: .*Try another snapshot") as caught:
        site.snapshots.restore(site.home / "file", to=site.home / "other")
    assert caught.value.__notes__
    assert [each.name for each in site.home.rglob("*")] == ["file"]


def test_a_damaged_snapshot_is_not_left_out_of_the_versions_without_a_word(site):
    for content in ("first", "second"):
        before = set((site.repository / "data").glob("*/*"))
        (site.home / "file").write_text(content)
        taken = site.snapshots.take()
    for pack in set((site.repository / "data").glob("*/*")) - before:
        pack.chmod(0o600)
        pack.write_bytes(bytes(pack.stat().st_size))
    shutil.rmtree(private_folder("farandole-snapshots"))
    with pytest.raises(SnapshotError, match=f"The snapshot {taken.short_id} is damaged, so the versions are not known"):
        site.snapshots.list(site.home / "file")


def test_a_repository_that_is_none_is_reported(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SnapshotError, match="is damaged"):
        Snapshots(home=tmp_path, connect=lambda: Repository(url=str(tmp_path / "none"), password=PASSWORD)).list()
