"""Tests for the endpoints in the panel, on a real notebook server with a fake hub and fake endpoints."""

import asyncio
import json

import pytest
from aiohttp import web
from farandole.models.model import ModelInfo
from farandole.models.names import parse_name
from farandole.server.panel import wire, wire_hub, wire_routes
from farandole.server.panel.routes.endpoints import MOST_SHOWN, readable
from farandole.server.panel.routes.examples import MOST_ZEROS

from tests.panel import PanelHub, panel_server
from tests.unit.driver.endpoints.test_client import STREAM
from tests.unit.driver.workers.test_source import TOKEN
from tests.unit.server.panel.test_wire import misfit

FIGURES = {"requests_per_second": 2.5, "errors": 1, "p50_ms": 3.0, "p95_ms": 8.5}
UNKNOWN = {"requests_per_second": None, "errors": None, "p95_ms": None}
IMAGE = "registry.example.org/lab/iris:3"
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 2.0]}
REQUEST = {"inputs": [TENSOR]}
ANSWER = {"model_name": "iris", "model_version": "3", "outputs": [TENSOR]}


class EndpointHub(PanelHub):
    """A fake hub with fake endpoints. `called` has the requests for inference with their tokens."""

    def __init__(self):
        super().__init__()
        self.status = {"model": "iris", "version": 3, **FIGURES}
        self.answered = (200, ANSWER)
        self.inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
        self.called = []

    def application(self):
        app = super().application()
        app.router.add_get("/user/ada/{name}/farandole/status", self.endpoint_status)
        app.router.add_get("/user/ada/{name}/v2/models/iris", self.metadata)
        app.router.add_post("/user/ada/{name}/v2/models/{model}/infer", self.infer)
        return app

    def serves(self, name, model="iris:3", **about):
        self.has(f"serve-{name}", role="endpoint", model=model)
        self.servers[f"serve-{name}"] |= about

    async def endpoint_status(self, request):
        if request.match_info["name"] in self.hung:
            await asyncio.Event().wait()
        return web.json_response(self.status) if self.status else web.Response(status=502, text="<b>Bad gateway</b>")

    async def metadata(self, request):
        return web.json_response({"name": "iris", "versions": [], "platform": "", "inputs": self.inputs, "outputs": []})

    async def infer(self, request):
        self.called.append((request.path, request.headers["Authorization"], await request.json()))
        status, value = self.answered
        return web.json_response(value, status=status)


@pytest.fixture
def hub():
    return EndpointHub()


@pytest.fixture
async def server(tmp_path, monkeypatch, hub, model_store):
    async with panel_server(tmp_path, monkeypatch, hub) as server:
        yield server


def save(model_store, name="iris", example=None, versions=3):
    """Save versions of a model, each with the same example."""

    def write(folder):
        (folder / "weights.safetensors").write_bytes(b"weights")
        if example is not None:
            (folder / "example.json").write_text(example if isinstance(example, str) else json.dumps(example))
        return ModelInfo(name=parse_name(name), version=1, folder=folder, created=1.0)

    for _ in range(versions):
        model_store.save(parse_name(name), write)


async def endpoints(server):
    return (await server.ask("GET", "state"))["endpoints"]


async def test_the_state_of_each_endpoint_is_known(server, hub):
    hub.has("main-w0")
    hub.has("")
    hub.serves("iris", full_url="https://hub.example.org/user/ada/serve-iris/")
    hub.serves("new", model="vision/cells:1", ready=False, pending="spawn")
    hub.serves("old", model="old:7", ready=False, pending="stop")
    hub.has("serve-app", role="endpoint", command=["python", "app.py", "{port}"])
    found = await endpoints(server)
    assert [misfit(one, wire_hub.Endpoint) for one in found] == [None] * 4
    assert [(one["name"], one["state"], one["model"], one["version"], one["command"]) for one in found] == [
        ("app", "ready", None, None, "python app.py {port}"),
        ("iris", "ready", "iris", 3, None),
        ("new", "starting", "vision/cells", 1, None),
        ("old", "stopping", "old", 7, None),
    ]
    assert [one["url"] for one in found[:2]] == [
        "/user/ada/serve-app/", "https://hub.example.org/user/ada/serve-iris/",
    ]  # fmt: skip
    assert [one["p95_ms"] for one in found] == [None, 8.5, None, None]
    assert (found[1]["requests_per_second"], found[1]["errors"]) == (2.5, 1)
    # Only an endpoint that serves a model and is ready has figures to ask for.
    assert {path for _, path in hub.requests if "status" in path} == {"/user/ada/serve-iris/farandole/status"}


async def test_without_endpoints_nothing_is_asked_about_them(server, hub):
    assert await endpoints(server) == []
    assert sorted(path.removeprefix("/hub/api/") for _, path in hub.requests) == [
        "farandole/gpus", "farandole/notices", "user", "users/ada",
    ]  # fmt: skip


async def test_the_stream_of_an_endpoint_is_known(server, hub):
    hub.serves("iris")
    hub.status = {**hub.status, "stream": STREAM}
    [found] = await endpoints(server)
    assert misfit(found, wire_hub.Endpoint) is None
    assert found["stream"] == {**STREAM, "problem": None}
    hub.status["stream"] = {**STREAM, "lag": None, "problem": "the broker does not answer"}
    [found] = await endpoints(server)
    assert misfit(found, wire_hub.Endpoint) is None
    assert (found["stream"]["lag"], found["stream"]["problem"]) == (None, "the broker does not answer")


async def test_an_endpoint_with_an_invalid_stream_is_listed_without_figures(server, hub):
    hub.serves("iris")
    hub.status = {**hub.status, "stream": {**STREAM, "lag": "many"}}
    [found] = await endpoints(server)
    assert (found["state"], found["version"], found["errors"], found["stream"]) == ("ready", None, None, None)


async def test_the_model_in_an_image_is_known_when_its_endpoint_answers(server, hub):
    hub.has("serve-lab", role="endpoint", model_image=IMAGE)
    hub.has("serve-new", role="endpoint", model_image=IMAGE)
    hub.servers["serve-new"] |= {"ready": False, "pending": "spawn"}
    lab, new = await endpoints(server)
    assert [misfit(one, wire_hub.Endpoint) for one in (lab, new)] == [None] * 2
    assert (lab["image"], lab["model"], lab["version"], lab["command"]) == (IMAGE, "iris", 3, None)
    assert (new["image"], new["model"], new["version"], new["command"]) == (IMAGE, None, None, None)
    hub.status = None
    assert (await endpoints(server))[0]["model"] is None


async def test_pages_get_the_endpoints_and_each_change(server, hub):
    hub.serves("iris")
    async with server.stream() as stream:
        message = await stream.until("endpoints")
        assert misfit(message, wire.EndpointsMessage) is None
        assert message["endpoints"][0]["version"] == 3
        hub.status = {**hub.status, "version": 4}
        await stream.until("endpoints", lambda said: said["endpoints"][0]["version"] == 4)
        hub.servers.clear()
        await stream.until("endpoints", lambda said: said["endpoints"] == [])


async def test_a_hung_endpoint_delays_nothing_and_is_listed_without_figures(server, hub, monkeypatch):
    monkeypatch.setattr("farandole.server.panel.panel.FIRST_SECONDS", 0.9)
    hub.has("main-w0")
    hub.serves("iris")
    hub.serves("other")
    hub.hung.add("serve-iris")
    state = await server.ask("GET", "state")
    assert state["hub"]["error"] is None
    assert state["clusters"][0]["workers"][0]["usage"]
    iris, other = state["endpoints"]
    assert iris == {**other, **UNKNOWN, "name": "iris", "url": "/user/ada/serve-iris/", "version": None}
    assert other["errors"] == 1


async def test_an_endpoint_that_cannot_be_asked_has_no_figures_and_no_version(server, hub):
    hub.serves("iris")
    hub.status = None
    [found] = await endpoints(server)
    assert (found["state"], found["model"], found["version"]) == ("ready", "iris", None)
    assert {key: found[key] for key in UNKNOWN} == UNKNOWN


async def test_known_endpoints_stay_while_the_hub_is_away(server, hub):
    hub.serves("iris")
    async with server.stream() as stream:
        await stream.until("endpoints", lambda said: said["endpoints"])
        hub.away = True
        await stream.until("clusters", lambda said: said["hub"]["error"])
        [found] = await endpoints(server)
        assert (found["name"], found["errors"]) == ("iris", None)


async def test_the_example_of_the_served_version_is_shown_with_a_line_for_each_tensor(server, hub, model_store):
    save(model_store, example=REQUEST)
    hub.serves("iris")
    found = await server.ask("GET", "endpoints/iris/example")
    assert misfit(found, wire_routes.EndpointRequest) is None
    assert json.loads(found["request"]) == REQUEST
    assert found["request"].splitlines()[2] == f"  {json.dumps(TENSOR)}"
    assert hub.called == []


async def test_the_example_is_that_of_the_version_not_of_the_latest(server, hub, model_store):
    save(model_store, example={"inputs": []}, versions=2)
    save(model_store, example=REQUEST, versions=1)
    save(model_store, example={"inputs": []}, versions=1)
    hub.serves("iris")
    assert json.loads((await server.ask("GET", "endpoints/iris/example"))["request"]) == REQUEST
    hub.status = None
    # The version is unknown while the endpoint does not answer.
    async with server.stream() as stream:
        await stream.until("endpoints", lambda said: said["endpoints"][0]["version"] is None)
        found = await server.ask("GET", "endpoints/iris/example")
    assert json.loads(found["request"]) == {"inputs": []}


async def test_the_example_of_an_image_is_a_row_of_zeros(server, hub, model_store):
    # This is another model, which only has the name of the one in the image.
    save(model_store, example=REQUEST)
    hub.has("serve-lab", role="endpoint", model_image=IMAGE)
    hub.inputs += [{"name": "n", "datatype": "INT64", "shape": [2]}, {"name": "b", "datatype": "BOOL", "shape": []}]
    found = await server.ask("GET", "endpoints/lab/example")
    zeros = [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.0, 0.0]},
        {"name": "n", "datatype": "INT64", "shape": [2], "data": [0, 0]},
        {"name": "b", "datatype": "BOOL", "shape": [], "data": [False]},
    ]
    assert json.loads(found["request"]) == {"inputs": zeros}
    await server.ask("POST", "endpoints/lab/infer", json={"request": None})
    assert [request for _, _, request in hub.called] == [{"inputs": zeros}]


@pytest.mark.parametrize(
    ("inputs", "status", "message"),
    [
        (None, 409, "the endpoint lab sent an invalid description of its inputs: TypeError"),
        ([{"name": "x"}], 409, "the endpoint lab sent an invalid description of its inputs: KeyError('datatype')"),
        ([{"name": "x", "datatype": "FP32", "shape": ["many"]}], 409, "invalid description of its inputs: TypeError"),
        ([{"name": "x", "datatype": "FP32", "shape": [1, MOST_ZEROS + 1]}], 400, "are too large for an example; use"),
    ],
)
async def test_an_image_without_a_usable_description_has_no_example(server, hub, inputs, status, message):
    hub.has("serve-lab", role="endpoint", model_image=IMAGE)
    hub.inputs = inputs
    refused = await server.ask("GET", "endpoints/lab/example", status)
    assert message in refused["message"]


async def test_the_request_in_the_form_is_sent_with_the_users_token_and_answered(server, hub):
    hub.serves("iris")
    answer = await server.ask("POST", "endpoints/iris/infer", json={"request": json.dumps(REQUEST)})
    assert misfit(answer, wire_routes.EndpointAnswer) is None
    assert hub.called == [("/user/ada/serve-iris/v2/models/iris/infer", f"token {TOKEN}", REQUEST)]
    assert (json.loads(answer["answer"]), answer["complete"]) == (ANSWER, True)
    assert 0 < answer["seconds"] < 60


async def test_a_model_of_a_group_is_called_without_the_groups_name(server, hub):
    hub.serves("cells", model="vision/cells:1")
    hub.status = {**hub.status, "model": "vision/cells", "version": 1}
    await server.ask("POST", "endpoints/cells/infer", json={"request": "{}"})
    assert hub.called == [("/user/ada/serve-cells/v2/models/cells/infer", f"token {TOKEN}", {})]


async def test_an_example_and_an_answer_may_be_too_large_for_a_page(server, hub, model_store):
    large = {"inputs": [{**TENSOR, "shape": [1, MOST_SHOWN], "data": [0.0] * MOST_SHOWN}]}
    save(model_store, example=large)
    hub.serves("iris")
    hub.answered = (200, {"outputs": large["inputs"]})
    assert await server.ask("GET", "endpoints/iris/example") == {"request": None}
    answer = await server.ask("POST", "endpoints/iris/infer", json={"request": None})
    assert [request for _, _, request in hub.called] == [large]
    assert (answer["complete"], len(answer["answer"])) == (False, MOST_SHOWN)
    assert answer["answer"] == readable({"outputs": large["inputs"]})[:MOST_SHOWN]


async def test_the_longest_example_that_is_shown_can_be_sent_back(server, hub, model_store):
    data = [0.0] * ((MOST_SHOWN - len(readable(REQUEST))) // len(", 0.0"))
    save(model_store, example={"inputs": [{**TENSOR, "data": data}]})
    hub.serves("iris")
    found = await server.ask("GET", "endpoints/iris/example")
    assert len(found["request"]) > MOST_SHOWN - 20
    await server.ask("POST", "endpoints/iris/infer", json=found)
    assert len(hub.called) == 1


async def test_the_reason_of_a_refusal_comes_from_the_endpoint(server, hub):
    hub.serves("iris")
    hub.answered = (400, {"error": "the input 'x' is missing; expected <b>x</b>: FP32 [-1, 4]"})
    refused = await server.ask("POST", "endpoints/iris/infer", 409, json={"request": "{}"})
    assert misfit(refused, wire.Problem) is None
    assert refused["code"] == "failed"
    assert refused["message"] == (
        "the endpoint iris answered 400: the input 'x' is missing; expected <b>x</b>: FP32 [-1, 4]"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"request": "{'inputs'"}, "the request is not valid JSON"),
        ({"request": "[1]"}, "the request is not a JSON object"),
        ({"request": ""}, "the request is not valid JSON"),
        ({"request": {}}, "request must be of type str, not {}"),
        ({}, "request must be of type str, not None"),
        ({"request": " " * 2**17}, "the body must be a JSON object of at most 100 KiB"),
    ],
)
async def test_an_invalid_request_is_refused_before_it_is_sent(server, hub, body, message):
    hub.serves("iris")
    refused = await server.ask("POST", "endpoints/iris/infer", 400, json=body)
    assert (refused["code"], misfit(refused, wire.Problem)) == ("invalid", None)
    assert message in refused["message"]
    assert hub.called == []


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", ""), ("GET", "/example"), ("POST", "/infer"), ("POST", "/infer?large")]
)
@pytest.mark.parametrize("name", ["none", "main-w0", "other", "..%2Firis"])
async def test_what_is_no_endpoint_is_not_found_and_not_stopped(server, hub, method, path, name):
    hub.has("main-w0")
    hub.has("serve-other")
    body = {"request": None if "large" in path else "{}"}
    refused = await server.ask(method, f"endpoints/{name}{path}", 404, json=body)
    assert (refused["code"], misfit(refused, wire.Problem)) == ("unknown", None)
    assert set(hub.servers) == {"main-w0", "serve-other"}
    assert hub.called == []


async def test_an_endpoint_that_runs_a_command_has_no_example_and_gets_no_request(server, hub):
    hub.has("serve-app", role="endpoint", command=["python"])
    for method, path in (("GET", "example"), ("POST", "infer")):
        refused = await server.ask(method, f"endpoints/app/{path}", 404, json={"request": "{}"})
        assert refused["message"] == "there is no endpoint 'app' that serves a model"
    assert hub.called == []


@pytest.mark.parametrize(
    ("example", "status", "message"),
    [
        (None, 400, "the example of iris:3 cannot be read: 'example.json': No such file or directory"),
        ("[1]", 400, "the example of iris:3 cannot be read: 'example.json' is not a JSON object"),
        ("{", 400, "the example of iris:3 cannot be read: 'example.json' is not valid JSON"),
        (..., 404, "there is no model 'iris'"),
    ],
)
async def test_an_example_that_is_not_there_is_named(server, hub, model_store, example, status, message):
    if example is not ...:
        save(model_store, example=example)
    hub.serves("iris")
    for method, path in (("GET", "example"), ("POST", "infer")):
        refused = await server.ask(method, f"endpoints/iris/{path}", status, json={"request": None})
        assert message in refused["message"]
    assert hub.called == []


async def test_an_endpoint_is_stopped_and_then_gone(server, hub):
    hub.serves("iris")
    hub.serves("other")
    hub.busy_deletes = 1
    async with server.stream() as stream:
        await stream.until("endpoints", lambda said: len(said["endpoints"]) == 2)
        await server.ask("DELETE", "endpoints/iris", 204)
        assert list(hub.servers) == ["serve-other"]
        await stream.known("endpoints", lambda said: [one["name"] for one in said["endpoints"]] == ["other"])
    refused = await server.ask("DELETE", "endpoints/iris", 404)
    assert "there is no endpoint 'iris'; running: other" in refused["message"]


async def test_without_a_hub_there_are_no_endpoints(tmp_path, monkeypatch, model_store):
    async with panel_server(tmp_path, monkeypatch) as server:
        assert await endpoints(server) == []
        refused = await server.ask("DELETE", "endpoints/iris", 404)
        assert refused["message"] == "there is no hub here, so there are no endpoints"


async def test_only_the_path_of_an_endpoint_stops_it(server, hub):
    hub.serves("iris")
    for path in ("example", "infer"):
        await server.ask("DELETE", f"endpoints/iris/{path}", 405)
    assert list(hub.servers) == ["serve-iris"]


def test_a_message_is_readable_and_still_the_same():
    message = {"id": "ä", "parameters": {}, "inputs": [TENSOR, TENSOR], "outputs": [], "more": [1, {"a": 2}]}
    assert json.loads(readable(message)) == message
    assert readable(message).splitlines() == [
        "{",
        ' "id": "ä",',
        ' "parameters": {},',
        ' "inputs": [',
        f"  {json.dumps(TENSOR)},",
        f"  {json.dumps(TENSOR)}",
        " ],",
        ' "outputs": [],',
        ' "more": [1, {"a": 2}]',
        "}",
    ]
    assert json.loads(readable({})) == {}
    assert json.loads(readable({"outputs": [{"data": [float("nan")]}]}))["outputs"]
