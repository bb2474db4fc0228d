"""Models as images: published to a registry or written to a file, and served with and without a hub.

tests/docker/test_swarm.py serves an image by its digest on other engines.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from farandole.registry.client import Registry
from farandole.registry.image import Base, ModelImage
from farandole.registry.layout import write_layout

from hub.process import local_session, wait_until
from tests.clients.kernel import CellError
from tests.docker.stack import docker
from tests.docker.test_serving import CELL_SECONDS, SAVE, call

if TYPE_CHECKING:
    from pathlib import Path

    from farandole.models.model import ModelInfo

    from tests.docker.registry import Registry as RunningRegistry
    from tests.docker.stack import Stack

USER = "sofja"
START_SECONDS = 60
BODY = {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}]}


def test_an_image_from_a_file_answers_without_a_hub_and_without_a_login(
    model_registry: RunningRegistry, model: ModelInfo, tmp_path: Path
) -> None:
    base = Base.find(model_registry.serving, Registry.of(model_registry.serving))
    name = f"farandole-test-{secrets.token_hex(3)}:1"
    write_layout(ModelImage.make(model, base), tmp_path / "small.tar", name)
    assert name in docker("load", "--input", str(tmp_path / "small.tar"))
    container = docker("run", "--detach", "--publish", "127.0.0.1::8080", name)
    try:
        url = f"http://{docker('port', container, '8080/tcp')}/v2"
        wait_until(lambda: answers(f"{url}/health/ready"), START_SECONDS)
        answer = local_session().post(f"{url}/models/small/infer", json=BODY, timeout=30)
        assert answer.json()["outputs"][0]["data"] == [10.0]
        assert docker("exec", container, "id", "--user") == "1000"
    finally:
        docker("rm", "--force", container)
        docker("rmi", name)


def answers(url: str) -> bool:
    """Return whether a server answers, instead of refusing or closing connections."""
    try:
        return local_session().get(url, timeout=10).ok
    except OSError:
        return False


def test_a_notebook_publishes_an_image_and_serves_it_if_it_is_admitted(
    stack: Stack, model_registry: RunningRegistry
) -> None:
    with stack.kernel(USER) as kernel:
        kernel.execute(f"{SAVE}\n%load_ext farandole", deadline=CELL_SECONDS)
        # A container reaches the registry at another address than the engine.
        place = f"http://{model_registry.there}"
        line = f"%models publish small --to {place}/lab/sums --base {place}/{model_registry.serving.repository}:"
        said = kernel.execute(f"{line}{model_registry.serving.tag}", deadline=CELL_SECONDS)
        assert said.startswith(f"small:1 is published as {model_registry.there}/lab/sums:1@sha256:")
        with pytest.raises(CellError, match=r"does not run the image '127.0.0.1:1/other/small:1' .*MODEL_IMAGES"):
            kernel.execute("%serve 127.0.0.1:1/other/small:1", deadline=CELL_SECONDS)
        # The name that was printed has the digest, by which the engine pulls.
        image = said.split()[4].replace(model_registry.there, model_registry.here)
        assert "small:1" in kernel.execute(f"%serve {image} --name small", deadline=CELL_SECONDS)
        infer = 'import farandole as fd; print(fd.Endpoint("small").infer(input=[[1.0, 2.0, 3.0, 4.0]])["output"])'
        assert "[[10.]]" in kernel.execute(infer, deadline=CELL_SECONDS)
        token = kernel.execute("%serve token small --days 1", deadline=CELL_SECONDS).strip()
        found = call(stack, token, "small", USER)
        assert (found.status_code, found.json()["outputs"][0]["data"]) == (200, [10.0]), found.text
        assert call(stack, "", "small", USER).status_code == 403
        check_that_it_has_no_files(stack, image)
        kernel.execute("%serve stop small", deadline=CELL_SECONDS)


def check_that_it_has_no_files(stack: Stack, image: str) -> None:
    """Check that the endpoint runs from the image and sees no volume, because somebody else may have made the image."""
    [container] = [each for each in stack.containers() if f"-server-{USER}--serve-small-" in each]
    inspected = stack.inspect(container)
    assert inspected["Config"]["Image"] == image
    assert inspected["Mounts"] == []
