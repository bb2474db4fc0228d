"""Tests of the TensorBoard viewer in a Jupyter server with jupyter-server-proxy."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import requests
from farandole.server.worker.args import WORKER_ARGS
from torch.utils.tensorboard import SummaryWriter

from spawner_config.local import free_port

RUN = "20261123-142233-9f3c"
RANK = f"{RUN}/tensorboard/rank-0"
SECONDS = 90
EXTENSIONS = {"farandole.server.notebook": True, "jupyter_server_proxy": True}
NOTEBOOK = ["-m", "jupyter_server", f"--ServerApp.jpserver_extensions={EXTENSIONS}"]
WORKER = ["-m", "farandole.server.worker", *WORKER_ARGS]


class Server:
    """A Jupyter server in a process of its own, on a machine where jupyter-server-proxy is enabled."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        enabled = folder / "config" / "jupyter_server_config.d" / "proxy.json"
        enabled.parent.mkdir(parents=True)
        enabled.write_text(json.dumps({"ServerApp": {"jpserver_extensions": {"jupyter_server_proxy": True}}}))
        port, token = free_port(), secrets.token_hex(16)
        self.url, self.login = f"http://127.0.0.1:{port}/", {"Authorization": f"token {token}"}
        own = {"JUPYTER_TOKEN": token, "JUPYTER_RUNTIME_DIR": str(folder / "runtime"), "TMPDIR": str(folder)}
        own |= {"FARANDOLE_RUNS": str(folder / "runs"), "JUPYTER_CONFIG_PATH": str(folder / "config")}
        listen = [f"--port={port}", "--ip=127.0.0.1", "--no-browser", "--allow-root", f"--ServerApp.root_dir={folder}"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments, *listen], env={**os.environ, **own}, stdout=log, stderr=log
            )
        self.until(self._answers)

    def until(self, wanted: Callable[[], bool]) -> None:
        """Wait until ``wanted`` returns True."""
        give_up = time.monotonic() + SECONDS
        while not wanted():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return self.get("api").ok
        except requests.ConnectionError:
            return False

    def get(self, path: str) -> requests.Response:
        return requests.get(self.url + path, headers=self.login, timeout=SECONDS)

    def viewer(self) -> psutil.Process:
        children = psutil.Process(self.process.pid).children()
        (found,) = [child for child in children if "farandole.server.tensorboard" in child.cmdline()]
        return found

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(SECONDS)


def write_events(runs: Path) -> None:
    with SummaryWriter(str(runs / RANK)) as writer:
        for step in range(3):
            writer.add_scalar("loss", 1.0 / (step + 1), step)


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Server]:
    write_events(tmp_path / "runs")
    server = Server(tmp_path, NOTEBOOK)
    yield server
    server.stop()


def test_the_user_sees_the_runs_and_nobody_else_reaches_the_viewer(notebook: Server) -> None:
    page = notebook.get("tensorboard/")
    assert page.status_code == 200
    assert "<title>TensorBoard</title>" in page.text
    notebook.until(lambda: RANK in notebook.get("tensorboard/data/runs").json())
    tags = notebook.get("tensorboard/data/plugin/scalars/tags").json()
    assert list(tags[RANK]) == ["loss"]
    for path in ("tensorboard", "tensorboard/", "tensorboard/data/runs"):
        answer = requests.get(notebook.url + path, timeout=SECONDS, allow_redirects=False)
        assert answer.status_code in {302, 403}, path
        assert RUN not in answer.text
    viewer = notebook.viewer()
    for process in (viewer, *viewer.children(recursive=True)):
        assert [one for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN] == []
    (socket,) = [one.laddr for one in viewer.net_connections("unix") if one.laddr]
    assert Path(socket).parent.stat().st_mode & 0o777 == 0o700


def test_the_server_stops_its_kernels_although_the_viewer_is_open(notebook: Server) -> None:
    kernel = requests.post(f"{notebook.url}api/kernels", headers=notebook.login, json={}, timeout=SECONDS)
    assert kernel.ok
    assert notebook.get("tensorboard/").ok
    processes = psutil.Process(notebook.process.pid).children(recursive=True)
    notebook.process.send_signal(signal.SIGTERM)
    notebook.process.wait(SECONDS)
    assert f"Kernel shutdown: {kernel.json()['id']}" in notebook.log.read_text()
    assert psutil.wait_procs(processes, timeout=10)[1] == []


def test_the_viewer_ends_with_a_server_that_was_killed(notebook: Server) -> None:
    assert notebook.get("tensorboard/").ok
    viewer = notebook.viewer()
    notebook.process.kill()
    notebook.process.wait(SECONDS)
    assert psutil.wait_procs([viewer], timeout=10)[1] == []


def test_other_hosts_are_refused(notebook: Server) -> None:
    assert notebook.get("proxy/169.254.169.254:80/").status_code == 403


def test_workers_have_neither_the_viewer_nor_a_proxy(tmp_path: Path) -> None:
    server = Server(tmp_path, WORKER)
    for path in ("tensorboard/", "proxy/8000/", "server-proxy/servers-info"):
        assert server.get(path).status_code == 404, path
    server.stop()
