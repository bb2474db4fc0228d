"""Runs the notebook on slow networks on a real hub, and on a laptop that leads workers of the hub."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from hub.process import local_session, wait_until
from spawner_config.local import free_port
from tests.clients.kernel import CellError, RemoteKernel
from tests.data import cinic10
from tests.three_pcs import CELL_SECONDS, NOTEBOOK, assert_compared, run_notebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hub import RunningHub

TOKEN = "laptop"


@pytest.fixture(scope="module")
def address(hub: RunningHub) -> str:
    """Start a notebook server, and return its address."""
    return hub.start_notebook("turing")


@pytest.fixture
def kernel(hub: RunningHub, address: str) -> Iterator[RemoteKernel]:
    shutil.copy(NOTEBOOK, hub.state / "homes" / "turing")
    with RemoteKernel(address, hub.browser("turing").make_token(), NOTEBOOK.name) as kernel:
        yield kernel


@contextmanager
def laptop(hub: RunningHub, folder: Path) -> Iterator[RemoteKernel]:
    """Log in at the hub, run a plain JupyterLab, and open the notebook there."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTERHUB_", "FARANDOLE_"))}
    options = {"cwd": folder, "env": own | {"XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder)}}
    login = [sys.executable, "-m", "farandole.cli", "login", hub.url]
    subprocess.run(login, input=hub.token_for("turing"), text=True, check=True, timeout=60, **options)
    shutil.copy(NOTEBOOK, folder)
    port = free_port()
    arguments = (f"--ServerApp.port={port}", f"--IdentityProvider.token={TOKEN}", "--no-browser", "--allow-root")
    with subprocess.Popen([sys.executable, "-m", "jupyterlab", *arguments], **options) as lab:
        try:
            wait_until(lambda: _answers(f"http://127.0.0.1:{port}/api"), 60)
            with RemoteKernel(f"http://127.0.0.1:{port}", TOKEN, NOTEBOOK.name) as kernel:
                yield kernel
        finally:
            lab.terminate()


def _answers(url: str) -> bool:
    try:
        return local_session().get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["torch", pytest.param("horovod", marks=pytest.mark.release)])
def test_the_notebook_trains_in_each_mode_and_compares(kernel: RemoteKernel, tmp_path: Path, backend: str) -> None:
    assert_compared(run_notebook(kernel, data=str(cinic10(tmp_path)), backend=backend))


@pytest.mark.release
@pytest.mark.timeout(600)
def test_without_the_images_the_notebook_says_where_to_get_them(kernel: RemoteKernel, tmp_path: Path) -> None:
    images = tmp_path / "none"
    (images / "train" / "airplane").mkdir(parents=True)
    with pytest.raises(CellError) as caught:
        run_notebook(kernel, data=str(images), backend="torch")
    assert f"There is no CINIC-10 in {images}: its folder train is missing or has no images." in str(caught.value)
    assert f"`%cluster put FOLDER --to {images}`" in str(caught.value)
    kernel.execute("%cluster stop", deadline=CELL_SECONDS)


# The test above runs the same cells on the hub.
@pytest.mark.release
@pytest.mark.timeout(900)
def test_the_notebook_leads_workers_of_the_hub_from_a_laptop(hub: RunningHub, tmp_path: Path) -> None:
    with laptop(hub, tmp_path) as kernel:
        assert_compared(run_notebook(kernel, data=str(cinic10(tmp_path / "images")), backend="torch"))
