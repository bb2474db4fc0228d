"""Models as images: published to a registry, pulled by another machine, and served there without a hub."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import farandole as fd
import pytest
import torch
from farandole.models.store import ModelStore
from farandole.registry.client import Registry
from farandole.registry.image import Base, ModelImage
from farandole.registry.layout import write_layout
from farandole.registry.publish import publish
from farandole.registry.reference import parse_reference

from images.names import SERVING, version
from tests.docker import registry
from tests.docker.bare import HERE, bare_engine
from tests.docker.stack import docker
from tests.docker.test_serving import CELL_SECONDS, call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from farandole.models.model import ModelInfo

    from tests.docker.engines.second import SecondEngine
    from tests.docker.registry import Registry as RunningRegistry
    from tests.docker.stack import Stack

USER = "sofja"
START_SECONDS = 60
CALL = """
import json, urllib.request
url = "http://127.0.0.1:8080/v2/models/small/infer"
body = {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}]}
request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
answer = json.load(urllib.request.urlopen(request, timeout=10))
print(answer["model_version"], answer["outputs"][0]["data"])
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[SecondEngine]:
    with bare_engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def running(machine: SecondEngine) -> Iterator[RunningRegistry]:
    """A registry that has the serving image, and that the other machine reaches."""
    assert machine.address
    with registry.running(HERE) as found:
        name = f"{found.here}/{SERVING.tag(version())}"
        docker("tag", SERVING.tag(version()), name)
        docker("push", "--quiet", name)
        yield found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelInfo:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_MODELS", str(tmp_path_factory.mktemp("models")))
        linear = torch.nn.Linear(4, 1, bias=False)
        torch.nn.init.ones_(linear.weight)
        fd.save_model(linear, "small", example=torch.ones(1, 4), onnx=True)
        return ModelStore().find("small")


def answer(machine: SecondEngine, image: str) -> str:
    """Return the answer of an image that runs on the other machine, in a container without a network."""
    container = machine.docker("run", "--detach", "--network", "none", image).strip()
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                return machine.docker("exec", container, "python", "-c", CALL).strip()
            except AssertionError:
                assert time.monotonic() < end, machine.docker("logs", container)
                time.sleep(1)
    finally:
        machine.docker("rm", "--force", container)


def test_another_machine_pulls_the_image_by_its_digest(
    machine: SecondEngine, running: RunningRegistry, model: ModelInfo
) -> None:
    base = parse_reference(f"{running.here}/{SERVING.tag(version())}")
    found = publish(model, parse_reference(f"{running.here}/lab/small"), base)
    assert found.base_sent == 0
    assert found.sent < model.size + 2_000_000
    again = publish(model, parse_reference(f"{running.here}/lab/small"), base)
    assert (again.reference.digest, again.sent) == (found.reference.digest, 0)
    image = f"{running.there}/lab/small@{found.reference.digest}"
    machine.docker("pull", image)
    assert answer(machine, image) == "1 [10.0]"


def test_another_machine_loads_the_image_from_a_file(
    machine: SecondEngine, running: RunningRegistry, model: ModelInfo, tmp_path: Path
) -> None:
    base = parse_reference(f"{running.here}/{SERVING.tag(version())}")
    write_layout(ModelImage.make(model, Base.find(base, Registry.of(base))), tmp_path / "small.tar", str(model))
    assert "small:1" in machine.docker("load", "--input", str(tmp_path / "small.tar"))
    assert answer(machine, "small:1") == "1 [10.0]"


def test_a_hub_serves_the_image_without_the_files_of_its_user(
    stack: Stack, running: RunningRegistry, model: ModelInfo
) -> None:
    base = parse_reference(f"{running.here}/{SERVING.tag(version())}")
    publish(model, parse_reference(f"{running.here}/lab/small"), base)
    with stack.kernel(USER) as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        said = kernel.execute(f"%serve {running.here}/lab/small:1", deadline=CELL_SECONDS)
        assert "small:1" in said
        token = kernel.execute("%serve token small --days 1", deadline=CELL_SECONDS).strip()
        found = call(stack, token, "small", USER)
        assert (found.status_code, found.json()["outputs"][0]["data"]) == (200, [10.0]), found.text
        infer = 'import farandole as fd; print(fd.Endpoint("small").infer(input=[[1.0, 2.0, 3.0, 4.0]])["output"])'
        assert "[[10.]]" in kernel.execute(infer, deadline=CELL_SECONDS)
        [container] = [each for each in stack.containers() if f"-server-{USER}--serve-small-" in each]
        inspected = stack.inspect(container)
        assert inspected["Config"]["Image"] == f"{running.here}/lab/small:1"
        assert inspected["Mounts"] == []
        kernel.execute("%serve stop small", deadline=CELL_SECONDS)
