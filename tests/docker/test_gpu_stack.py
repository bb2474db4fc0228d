"""GPUs on a hub in containers. The engine has two stand-in GPUs, which the hub assigns through the engine filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from images.names import HUB, NOTEBOOK, NOTEBOOK_CUDA, version
from tests.clients.browser import BrowserError
from tests.clients.kernel import CellError
from tests.docker.stack import Stack, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docker.engines.second import SecondEngine

CELL_SECONDS = 240.0
STOP_SECONDS = 180
GPUS = "0:stand-in,1:stand-in,7:not-there"

# tests/docker/test_gpus.py tests the same with a hub outside containers, which needs no images on the second engine.
pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def gpu_stack(gpu_engine: SecondEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    gpu_engine.copy(HUB.tag(version()), NOTEBOOK.tag(version()))
    # Servers with GPUs use the CUDA image, which does not run on stand-in GPUs. Give its name to the CPU image.
    gpu_engine.docker("tag", NOTEBOOK.tag(version()), NOTEBOOK_CUDA.tag(version()))
    folder = tmp_path_factory.mktemp("gpu-stack")
    with running(folder, subnets="10.215.128.0/20", engine=gpu_engine, FARANDOLE_GPUS=GPUS) as stack:
        yield stack


def devices(stack: Stack, container: str) -> list[str]:
    nodes = stack.docker("exec", container, "ls", "/dev").split()
    return [node for node in nodes if node.startswith("nvidia")]


def test_two_gpus_and_three_users(gpu_stack: Stack) -> None:
    for user, node in (("ada", "nvidia0"), ("grace", "nvidia1")):
        gpu_stack.browser(user).start_notebook("stand-in")
        assert devices(gpu_stack, f"{gpu_stack.name}-server-{user}") == [node]
    found = gpu_stack.inspect(f"{gpu_stack.name}-server-ada")
    assert found["Config"]["Image"] == NOTEBOOK_CUDA.tag(version())

    emmy = gpu_stack.browser("emmy")
    with pytest.raises(BrowserError, match="Of 2 GPUs of class stand-in ada holds 1 and grace holds 1"):
        emmy.start_notebook("stand-in")
    assert "0 of 2 free" in emmy.spawn_page()
    ada = gpu_stack.browser("ada")
    ada.stop_notebook()
    assert "1 of 2 free" in ada.spawn_page()

    with gpu_stack.kernel("emmy") as kernel:
        assert devices(gpu_stack, f"{gpu_stack.name}-server-emmy") == []
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        with pytest.raises(CellError, match="The start needs 3 GPUs of class stand-in, but this host has 2"):
            kernel.execute("%cluster start --workers 3 --profile stand-in --wait", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 1 --profile stand-in", deadline=CELL_SECONDS)
        [worker] = [name for name in gpu_stack.containers() if "--" in name]
        assert devices(gpu_stack, worker) == ["nvidia0"]
        status = kernel.execute("%cluster status", deadline=CELL_SECONDS)
        assert "GPUs stand-in: 0 of 2 free, emmy has 1, grace has 1" in status
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
    wait_until(lambda: "1 of 2 free" in ada.spawn_page(), STOP_SECONDS)
    for user in ("grace", "emmy"):
        gpu_stack.browser(user).stop_notebook()


def test_a_gpu_that_the_host_lacks_is_reported_and_nothing_remains(gpu_stack: Stack) -> None:
    browser = gpu_stack.browser("ada")
    with pytest.raises(BrowserError, match="could not give this server GPU 7: .*FARANDOLE_GPUS"):
        browser.start_notebook("not-there")
    wait_until(lambda: not gpu_stack.containers(), STOP_SECONDS)
    assert "1 of 1 free" in browser.spawn_page()
