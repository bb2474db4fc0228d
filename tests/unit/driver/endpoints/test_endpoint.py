"""Tests for the public class `Endpoint`, with a fake hub and a fake endpoint."""

import asyncio
import json

import numpy as np
import pytest
from aiohttp import web
from farandole import Endpoint
from farandole.exceptions import EndpointError, EndpointExistsError, EndpointNotFoundError, UsageError
from farandole.models.model import ONNX_FILE, WEIGHTS_FILE, ModelInfo, TensorInfo
from farandole.models.names import ModelName
from farandole.models.store import ModelStore

from tests.unit.driver.endpoints.test_client import EndpointHub, page, said
from tests.unit.driver.workers.test_source import TOKEN, served

METADATA = {"name": "iris", "inputs": [
    {"name": "x", "datatype": "INT64", "shape": [-1, 2]}, {"name": "mask", "datatype": "BOOL", "shape": [-1]},
]}  # fmt: skip
ANSWER = {"model_name": "iris", "model_version": "4", "outputs": [
    {"name": "output", "datatype": "FP32", "shape": [2, 1], "data": [0.5, 1]},
    {"name": "label", "datatype": "INT64", "shape": [2], "data": [3, 4]},
]}  # fmt: skip

PATH = "/user/ada/serve-iris/v2/models/iris"


class ModelHub(EndpointHub):
    """A fake hub whose endpoints describe their inputs with `metadata`. `sent` has the requests for inference.

    If `response` returns None, the connection breaks.
    """

    def __init__(self):
        super().__init__()
        self.metadata = lambda: web.json_response(METADATA)
        self.response = lambda: web.json_response(ANSWER)
        self.asked_hub = 0
        self.sent = []

    async def user(self, request):
        self.asked_hub += 1
        return await super().user(request)

    async def answer(self, request):
        self.requests.append((request.method, request.path, request.headers["Authorization"]))
        if request.method == "GET":
            return self.metadata()
        self.sent.append(await request.json())
        response = self.response()
        if response is None:
            request.transport.abort()
        return response or web.Response()


@pytest.fixture
def hub():
    return ModelHub()


@pytest.fixture
async def endpoint(hub):
    async with served(hub.application()) as url:
        yield Endpoint("iris", hub_url=url, token=TOKEN)


async def infer(endpoint, **inputs):
    return await asyncio.to_thread(endpoint.infer, **inputs)


def described_as(datatype):
    return {"name": "iris", "inputs": [{"name": "x", "datatype": datatype, "shape": [-1, 2]}]}


def switch_types(hub, datatype):
    """Let the endpoint expect another datatype, and refuse requests with the earlier one."""
    hub.metadata = lambda: web.json_response(described_as(datatype))
    hub.response = lambda: (
        web.json_response(ANSWER) if hub.sent[-1]["inputs"][0]["datatype"] == datatype else page(400)()
    )


async def test_an_answer_has_the_outputs_with_their_types_and_the_version(endpoint):
    outputs = await infer(endpoint, x=[[1, 2], [3, 4]])
    assert outputs.version == 4
    assert [*outputs] == ["output", "label"]
    assert (outputs["output"].dtype, outputs["output"].tolist()) == (np.float32, [[0.5], [1.0]])
    assert (outputs["label"].dtype, outputs["label"].tolist()) == (np.int64, [3, 4])


async def test_inputs_are_sent_with_the_types_that_the_endpoint_expects(hub, endpoint):
    await infer(endpoint, x=np.array([[1, 2]]), mask=[True], other=1.5)
    assert hub.sent == [{"inputs": [
        {"name": "x", "datatype": "INT64", "shape": [1, 2], "data": [1, 2]},
        {"name": "mask", "datatype": "BOOL", "shape": [1], "data": [True]},
        {"name": "other", "datatype": "FP32", "shape": [], "data": [1.5]},
    ]}]  # fmt: skip


async def test_only_the_first_call_asks_for_the_address_and_the_inputs(hub, endpoint):
    hub.serves("iris", "vision/iris:3")
    for _ in range(3):
        await infer(endpoint, x=[[1, 2]])
    # The hub is asked for the name of the user and for the user's servers.
    assert hub.asked_hub == 2
    assert [request[:2] for request in hub.requests] == [("GET", PATH), *[("POST", f"{PATH}/infer")] * 3]


async def test_a_version_with_other_inputs_is_called_with_their_types(hub, endpoint):
    await infer(endpoint, x=[[1, 2]])
    switch_types(hub, "FP32")
    assert (await infer(endpoint, x=[[1, 2]])).version == 4
    await infer(endpoint, x=[[1, 2]])
    assert [request["inputs"][0]["datatype"] for request in hub.sent] == ["INT64", "INT64", "FP32", "FP32"]


async def test_a_switch_during_a_call_does_not_fail_it(hub, endpoint):
    described = iter(("INT64", "FP64", "FP32"))
    switch_types(hub, "FP32")
    hub.metadata = lambda: web.json_response(described_as(next(described)))
    assert (await infer(endpoint, x=[[1, 2]])).version == 4
    assert [request["inputs"][0]["datatype"] for request in hub.sent] == ["INT64", "FP64", "FP32"]


@pytest.mark.parametrize("response", [page(400), page(403), page(404), page(500), page(503), lambda: None])
async def test_a_refusal_by_the_same_endpoint_is_an_error_at_once(hub, endpoint, response):
    await infer(endpoint, x=[[1, 2]])
    hub.response = response
    hub.servers["serve-iris"]["last_activity"] = "later"
    with pytest.raises(EndpointError, match="the endpoint iris (answered|does not answer)"):
        await infer(endpoint, x=[[1, 2]])
    assert len(hub.sent) == 2


@pytest.mark.parametrize("response", [page(403), page(404), page(503), lambda: None])
async def test_an_endpoint_that_was_started_again_gets_the_request(hub, endpoint, response):
    await infer(endpoint, x=[[1, 2]])

    def restart():
        hub.serves("iris", "iris:3", started="later")
        hub.response = lambda: web.json_response(ANSWER)
        return response()

    hub.response = restart
    assert (await infer(endpoint, x=[[1, 2]])).version == 4
    assert len(hub.sent) == 3


async def test_an_endpoint_that_serves_another_model_now_gets_the_request(hub, endpoint):
    await infer(endpoint, x=[[1, 2]])
    hub.serves("iris", "cells:1")
    hub.response = lambda: web.json_response(ANSWER) if "/cells/" in hub.requests[-1][1] else page(404)()
    assert (await infer(endpoint, x=[[1, 2]])).version == 4


async def test_an_endpoint_that_runs_a_command_now_is_named(hub, endpoint):
    await infer(endpoint, x=[[1, 2]])
    hub.servers["serve-iris"]["user_options"] = {"role": "endpoint", "command": ["python", "app.py"]}
    hub.response = lambda: web.json_response({"message": "Hello"})
    with pytest.raises(EndpointError, match="the endpoint iris runs a command; send requests to /user/ada/serve-iris/"):
        await infer(endpoint, x=[[1, 2]])


async def test_an_endpoint_that_was_stopped_is_looked_for_at_each_call(hub, endpoint):
    await infer(endpoint, x=[[1, 2]])
    server = hub.servers.pop("serve-iris")
    hub.response = page(503)
    for _ in range(2):
        with pytest.raises(EndpointNotFoundError, match="there is no endpoint 'iris'"):
            await infer(endpoint, x=[[1, 2]])
    assert len(hub.sent) == 2
    hub.servers["serve-iris"] = server
    hub.response = lambda: web.json_response(ANSWER)
    assert (await infer(endpoint, x=[[1, 2]])).version == 4


async def test_an_endpoint_that_is_starting_is_not_called(hub, endpoint):
    hub.serves("iris", "iris:3", ready=False)
    with pytest.raises(EndpointError, match="the endpoint iris is starting or stopping; see `%serve list`"):
        await infer(endpoint, x=[[1, 2]])
    assert hub.requests == []


@pytest.mark.parametrize(
    "content",
    [
        {},
        {**ANSWER, "outputs": None},
        {**ANSWER, "outputs": [3]},
        {**ANSWER, "outputs": [{**ANSWER["outputs"][0], "shape": [3, 1]}]},
        {**ANSWER, "outputs": [{**ANSWER["outputs"][0], "datatype": "FP8"}]},
        {**ANSWER, "outputs": [{**ANSWER["outputs"][0], "datatype": ["FP32"]}]},
        {**ANSWER, "outputs": [{**ANSWER["outputs"][0], "data": ["x", "y"]}]},
        {**ANSWER, "outputs": [{**ANSWER["outputs"][1], "data": [2**80, 1]}]},
        {**ANSWER, "model_version": "latest"},
        {**ANSWER, "model_version": None},
    ],
)
async def test_an_invalid_answer_is_an_error(hub, endpoint, content):
    hub.response = lambda: web.json_response(content)
    with pytest.raises(EndpointError, match=r"the endpoint iris sent an invalid answer: .*\. Try again; if the error"):
        await infer(endpoint, x=[[1, 2]])


@pytest.mark.parametrize("content", [{}, {"inputs": None}, {"inputs": [3]}, {"inputs": [{"name": ["x"]}]}])
async def test_invalid_metadata_are_an_error(hub, endpoint, content):
    hub.metadata = said(json.dumps(content).encode())
    with pytest.raises(EndpointError, match="the endpoint iris sent an invalid description of its inputs"):
        await infer(endpoint, x=[[1, 2]])
    assert hub.sent == []


async def test_an_endpoint_that_does_not_answer_is_an_error(hub, endpoint):
    hub.metadata = page(502)
    with pytest.raises(EndpointError, match="the endpoint iris answered 502: Bad Gateway"):
        await infer(endpoint, x=[[1, 2]])


async def test_an_endpoint_that_runs_a_command_has_its_own_requests(hub, endpoint):
    hub.servers["serve-iris"]["user_options"] = {"role": "endpoint", "command": ["python", "app.py"]}
    with pytest.raises(EndpointError, match="the endpoint iris runs a command; send requests to /user/ada/serve-iris/"):
        await infer(endpoint, x=[[1, 2]])
    assert hub.requests == []


@pytest.mark.parametrize("name", ["", "No", "-a", "a-", "a_b", "vision/iris", "a" * 25, "iris\n"])
def test_other_texts_are_no_names_of_endpoints(name):
    with pytest.raises(UsageError, match="cannot be an endpoint's name; use 1 to 24 lower-case letters"):
        Endpoint(name)


@pytest.mark.parametrize("name", ["iris-w2", "w0", "a-w1-w22"])
def test_names_of_workers_are_no_names_of_endpoints(name):
    with pytest.raises(UsageError, match="names of workers end with -w and a number; choose another name with"):
        Endpoint(name)


@pytest.mark.parametrize("name", ["iris", "a", "iris-w", "w2a", "iris-w2-b", "a" * 24])
def test_names_of_endpoints(name):
    assert Endpoint(name).name == name


@pytest.fixture
def store(tmp_path):
    store = ModelStore(tmp_path)
    for name, inputs in (("iris", (TensorInfo(name="x", datatype="FP32", shape=(-1, 4)),)), ("plain", ())):
        save(store, name, inputs)
    return store


def save(store, name, inputs):
    def write(folder):
        for file in (WEIGHTS_FILE, ONNX_FILE):
            (folder / file).write_bytes(b"weights")
        return ModelInfo(name=ModelName(model=name), version=1, folder=folder, created=1.0, inputs=inputs)

    return store.save(ModelName(model=name), write)


async def begin(endpoint, *arguments, **options):
    url, token = endpoint._where
    return await asyncio.to_thread(
        Endpoint.start, *arguments, progress=len, hub_url=url, token=token, **options
    )  # fmt: skip


async def test_a_start_tells_the_hub_the_version_and_what_computes_it(hub, endpoint, store):
    started = await begin(endpoint, "iris", store=store, name="flowers", profile="cpu")
    assert started.name == "flowers"
    assert hub.asked["serve-flowers"]["user_options"] == {
        "role": "endpoint", "wait": False, "profile": "cpu", "model": "iris:1", "runtime": "onnx",
    }  # fmt: skip


async def test_a_command_is_started_under_the_name_app(hub, endpoint):
    assert (await begin(endpoint, command=["python", "app.py"])).name == "app"
    options = hub.asked["serve-app"]["user_options"]
    assert options == {"role": "endpoint", "wait": False, "command": ["python", "app.py"]}


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((), {}, UsageError, "give one of them"),
        (("iris",), {"command": ["app"]}, UsageError, "give one of them"),
        (("iris:1",), {}, EndpointExistsError, "there is an endpoint 'iris'; stop it with `%serve stop iris`"),
        (("iris",), {"name": "iris-w2"}, UsageError, "choose another name with `--name`"),
        (("plain",), {}, EndpointError, "plain:1 was saved without an example"),
    ],
)
async def test_a_wrong_start_is_refused_before_the_hub_is_asked(
    hub, endpoint, store, arguments, options, error, message
):
    with pytest.raises(error, match=message):
        await begin(endpoint, *arguments, store=store, **options)
    assert hub.asked == {}
