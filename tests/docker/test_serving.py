"""Endpoints in containers: models and commands that a notebook serves, and programs elsewhere call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hub.process import local_session
from images.names import NOTEBOOK, SERVING, SERVING_TORCH, version
from tests.clients.hosts import url_of
from tests.clients.kernel import CellError
from tests.docker.hub_api import HubApi
from tests.docker.probes import networks, reached
from tests.docker.stack import ADMIN
from tests.typhoons import NOTEBOOK as FROM_RUN_TO_SERVICE
from tests.typhoons import SAME_KM, SMALL, assert_replayed, assert_served, run_notebook

if TYPE_CHECKING:
    from collections.abc import Iterator

    import requests

    from tests.docker.registry import Registry
    from tests.docker.remote_hub import RemoteHub
    from tests.docker.stack import Stack

CELL_SECONDS = 300.0
USER, OTHER = "noether", "galois"
MEMBERS = ("ada", "grace")
"""Two members of the group ``vision``."""
SAVE = """
import torch, farandole as fd
model = torch.nn.Linear(4, 1, bias=False)
torch.nn.init.ones_(model.weight)
fd.save_model(model, "small", example=torch.ones(1, 4), onnx=True)
fd.save_model(model, "whole", example=torch.ones(1, 4))
"""
"""A cell that saves two models, which return the sum of their inputs. Only the first one is exported to ONNX."""
SAVE_FOR_GROUP = SAVE.replace('"small"', '"vision/shared"').replace('"whole"', '"vision/program"')
FORWARD = """
import asyncio

async def copy(reader, writer):
    while part := await reader.read(2**16):
        writer.write(part)
        await writer.drain()
    writer.close()

async def forward(reader, writer):
    there = await asyncio.open_connection(*{there})
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

server = await asyncio.start_server(forward, *{here})
"""
"""A cell that forwards connections from one host and port to another."""


@pytest.fixture(scope="module")
def token(stack: Stack) -> Iterator[str]:
    """Save the models, serve the first one, and yield a token that can only call its endpoint."""
    with stack.kernel(USER) as kernel:
        kernel.execute(SAVE, deadline=CELL_SECONDS)
    assert "small:1" in serve(stack, "small")
    yield serve(stack, "token small --days 1").strip()
    HubApi(stack, USER).stop(USER, "serve-small")


def serve(hub: RemoteHub, line: str) -> str:
    """Return the output of ``%serve`` in a notebook of the user."""
    with hub.kernel(USER) as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        return kernel.execute(f"%serve {line}", deadline=CELL_SECONDS)


def call(hub: RemoteHub, token: str, name: str = "small", user: str = USER) -> requests.Response:
    """Request the sum of four numbers from an endpoint, through the proxy."""
    url = url_of(hub.url, f"/user/{user}/serve-{name}/v2/models/{name}/infer")
    body = {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}]}
    return local_session().post(url, json=body, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def container(stack: Stack, name: str) -> str:
    """Return the name of an endpoint's container, which ends in a digest."""
    [found] = [each for each in stack.containers() if each.startswith(f"{stack.name}-server-{USER}--serve-{name}-")]
    return found


def test_an_endpoint_is_called_from_outside_with_its_token(stack: Stack, token: str) -> None:
    answer = call(stack, token)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["model_version"], found["outputs"][0]["data"]) == ("1", [10.0])


def test_the_token_of_another_user_is_refused(stack: Stack, token: str) -> None:
    assert call(stack, stack.browser(OTHER).make_token()).status_code == 403
    assert call(stack, "").status_code == 403
    answer = local_session().get(
        url_of(stack.url, f"/user/{USER}/api/contents"), headers={"Authorization": f"Bearer {token}"}, timeout=30
    )
    assert answer.status_code == 403


@pytest.mark.usefixtures("token")
def test_an_endpoint_has_its_image_and_only_the_home_of_its_user(stack: Stack) -> None:
    stack.browser(OTHER)
    found = stack.inspect(container(stack, "small"))
    assert found["Config"]["Image"] == SERVING.tag(version())
    mounts = [mount["Name"] for mount in found["Mounts"] if mount["Type"] == "volume"]
    assert [name for name in mounts if name.startswith(f"{stack.name}-")] == [f"{stack.name}-home-{USER}"]
    assert [mount for mount in found["Mounts"] if mount["Type"] != "volume"] == []
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    assert stack.docker("exec", container(stack, "small"), "id", "-u") == "1000"
    assert not [line for line in found["Config"]["Env"] if stack.passwords[ADMIN] in line]


@pytest.mark.usefixtures("token")
def test_the_programs_of_another_user_do_not_reach_an_endpoint(stack: Stack) -> None:
    targets = [(address, 8888) for address in networks(stack, container(stack, "small")).values()]
    assert targets
    with stack.kernel(USER) as own, stack.kernel(OTHER) as other:
        assert reached(own, targets) == targets
        assert reached(other, targets) == []


@pytest.mark.usefixtures("token")
def test_a_model_without_onnx_is_served_by_the_image_with_torch(stack: Stack) -> None:
    assert "whole:1" in serve(stack, "whole")
    assert stack.inspect(container(stack, "whole"))["Config"]["Image"] == SERVING_TORCH.tag(version())
    answer = call(stack, serve(stack, "token whole --days 1").strip(), "whole")
    assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [10.0])
    assert "endpoint 'whole' is stopped" in serve(stack, "stop whole")
    assert not [each for each in stack.containers() if "--serve-whole-" in each]


def test_a_group_serves_the_models_of_its_members(stack: Stack) -> None:
    author, user = MEMBERS
    with stack.kernel(author) as kernel:
        kernel.execute(SAVE_FOR_GROUP, deadline=CELL_SECONDS)
    with stack.kernel(user) as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        with pytest.raises(CellError, match="copy it to your own store with `%models copy vision/program:1`"):
            kernel.execute("%serve vision/program", deadline=CELL_SECONDS)
        assert "vision/shared:1" in kernel.execute("%serve vision/shared", deadline=CELL_SECONDS)
        token = kernel.execute("%serve token shared --days 1", deadline=CELL_SECONDS).strip()
        answer = call(stack, token, "shared", user)
        assert (answer.status_code, answer.json()["outputs"][0]["data"]) == (200, [10.0])
        kernel.execute("%serve stop shared", deadline=CELL_SECONDS)


def test_a_command_answers_behind_the_login(stack: Stack) -> None:
    serve(stack, '--command "python -m http.server --bind 127.0.0.1 {port}" --name files')
    assert stack.inspect(container(stack, "files"))["Config"]["Image"] == NOTEBOOK.tag(version())
    url = url_of(stack.url, f"/user/{USER}/serve-files/")
    refused = local_session().get(url, allow_redirects=False, timeout=30)
    assert (refused.status_code, "/hub/api/oauth2/authorize" in refused.headers["Location"]) == (302, True)
    headers = {"Authorization": f"Bearer {serve(stack, 'token files --days 1').strip()}"}
    answer = local_session().get(url, headers=headers, timeout=30)
    assert (answer.status_code, "Directory listing" in answer.text) == (200, True)
    assert "endpoint 'files' is stopped" in serve(stack, "stop files")


def test_an_endpoint_outlives_the_notebook_server(stack: Stack, token: str) -> None:
    before = stack.inspect(container(stack, "small"))["Id"]
    with stack.kernel(USER):
        pass
    stack.browser(USER).stop_notebook()
    assert call(stack, token).status_code == 200
    assert stack.inspect(container(stack, "small"))["Id"] == before


# Two workers train in containers for minutes; tests/integration/test_from_run_to_service.py runs the same cells.
@pytest.mark.release
@pytest.mark.timeout(1800)
def test_the_notebook_replaces_publishes_and_streams_in_containers(stack: Stack, model_registry: Registry) -> None:
    parameters = SMALL.replace('REGISTRY = ""', f'REGISTRY = "{model_registry.here}/lab"')
    parameters = parameters.replace('SERVING_IMAGE = ""', f'SERVING_IMAGE = "{model_registry.serving}"')
    with stack.kernel("lorenz") as other, stack.kernel("lorenz", path=FROM_RUN_TO_SERVICE.name) as kernel:
        other.execute(forward(model_registry), deadline=CELL_SECONDS)
        shown = run_notebook(kernel, parameters)
    assert_served(shown)
    assert f"typhoon:2 is published as {model_registry.here}/lab/typhoon:2@sha256:" in shown.image
    assert float(re.findall(r"the image and the model differ by at most (\S+) km", shown.image)[0]) < SAME_KM
    assert_replayed(shown)


def forward(registry: Registry) -> str:
    """Return a cell with which a container reaches the registry at the address that the engine uses."""
    return FORWARD.format(there=registry.there.split(":"), here=registry.here.split(":"))
