"""Tests for `EndpointClient` with a fake hub and fake endpoints, which may answer anything."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web
from farandole.driver.endpoints.client import ENDPOINT_PREFIX, LONGEST_REASON, EndpointClient, StreamStatus
from farandole.driver.workers.client import HubClient
from farandole.exceptions import (
    EndpointError,
    EndpointExistsError,
    EndpointNotFoundError,
    HubError,
    HubUnreachableError,
    WorkerStartError,
)

from spawner_config.roles import ENDPOINT_PREFIX as NAMED_BY_THE_HUB
from tests.unit.driver.workers.test_source import TOKEN, FakeHub, served

STATUS = {
    "model": "iris", "version": 4, "requests_per_second": 2.5, "errors": 1, "p50_ms": 3.0, "p95_ms": 8.5
}  # fmt: skip
STREAM = {
    "source": "nats:///calls", "target": "nats:///decisions.{label}", "lag": 12, "records_per_second": 812.4,
    "dead_letters": 3, "problem": "",
}  # fmt: skip
REMEDY = "Try again; if the error remains, stop it with `%serve stop iris` and start it again."


class EndpointHub(FakeHub):
    """A fake hub with the endpoint `iris`, which sends `response` to all requests.

    Attributes:
        requests: the requests to endpoints.
        together: endpoints answer as soon as this many requests wait.
    """

    def __init__(self):
        super().__init__()
        self.response = lambda: web.json_response(STATUS)
        self.requests = []
        self.together = asyncio.Barrier(1)
        self.serves("iris", "iris:3")

    def serves(self, name, model, **about):
        options = {"role": "endpoint", "model": model}
        self.servers[f"serve-{name}"] = {
            "ready": True, "url": f"/user/ada/serve-{name}/", "user_options": options, **about
        }  # fmt: skip

    async def register(self, name):
        # The hub ignores the options of a request while another start of the same server is pending.
        if name not in self.servers:
            await super().register(name)
            self.servers[name]["user_options"] = self.asked[name]["user_options"]

    def application(self):
        app = super().application()
        app.router.add_route("*", "/user/ada/{name}/{path:.*}", self.answer)
        return app

    async def answer(self, request):
        self.requests.append((request.method, request.path, request.headers["Authorization"]))
        await self.together.wait()
        return self.response()


@pytest.fixture
def hub():
    return EndpointHub()


@pytest.fixture
async def client(hub):
    async with served(hub.application()) as url, aiohttp.ClientSession() as session:
        yield EndpointClient(HubClient(url=url, token=TOKEN, session=session))


def page(status):
    return lambda: web.Response(status=status, text="<html>Bad gateway</html>", content_type="text/html")


def streaming(**changes):
    """Return the response of an endpoint that scores a stream."""
    return lambda: web.json_response({**STATUS, "stream": {**STREAM, **changes}})


def said(content, status=200):
    return lambda: web.Response(status=status, body=content, content_type="application/json")


def test_the_hub_and_the_client_give_endpoints_the_same_names():
    assert ENDPOINT_PREFIX == NAMED_BY_THE_HUB


async def test_an_endpoint_has_the_version_and_the_figures_that_it_sends(client, hub):
    found = await client.status("iris")
    assert (found.model, found.version, found.ready, found.url) == ("iris", 4, True, "/user/ada/serve-iris/")
    assert (found.requests_per_second, found.errors, found.p95_ms) == (2.5, 1, 8.5)
    assert hub.requests == [("GET", "/user/ada/serve-iris/farandole/status", f"token {TOKEN}")]


async def test_only_a_ready_endpoint_with_a_model_is_asked(client, hub):
    hub.serves("new", "new:1", ready=False)
    hub.servers["serve-app"] = {"ready": True, "url": "/user/ada/serve-app/", "user_options": {
        "role": "endpoint", "command": ["python", "app.py"],
    }}  # fmt: skip
    found = {one.name: one for one in await client.statuses()}
    assert [*found] == ["app", "iris", "new"]
    assert (found["app"].command, found["app"].model, found["new"].version) == (("python", "app.py"), "", 1)
    assert len(hub.requests) == 1


@pytest.mark.parametrize("response", [page(502), said(b'{"error": "wait"}', 503), page(302)])
async def test_an_endpoint_that_does_not_answer_has_no_version_and_no_figures(client, hub, response):
    hub.response = response
    found = await client.status("iris")
    # The endpoint may serve another version than the one with which it was started.
    assert (found.model, found.version, found.ready, found.url) == ("iris", 0, True, "/user/ada/serve-iris/")
    assert (found.requests_per_second, found.errors, found.p95_ms) == (None, None, None)


async def test_all_endpoints_are_asked_at_the_same_time(client, hub):
    hub.serves("other", "other:1")
    hub.together = asyncio.Barrier(2)
    assert [(one.name, one.version) for one in await client.statuses()] == [("iris", 4), ("other", 4)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>Log in</html>", "answer: its content is not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"\xff", "answer: its content is not valid JSON: "),
        (b"[" * 100_000, "answer: its content is nested too deeply"),
        (b"[]", "answer: its content is not a JSON object"),
        (b"null", "answer: its content is not a JSON object"),
        (b"{}", "status: 'model' is None"),
        (json.dumps({**STATUS, "model": 3}).encode(), "status: 'model' is 3"),
        (json.dumps({**STATUS, "version": "4"}).encode(), "status: 'version' is '4'"),
        (json.dumps({**STATUS, "version": True}).encode(), "status: 'version' is True"),
        (
            json.dumps({**STATUS, "requests_per_second": "many\n"}).encode(),
            "status: 'requests_per_second' is 'many\\n'",
        ),
        (json.dumps({**STATUS, "requests_per_second": float("nan")}).encode(), "status: 'requests_per_second' is nan"),
        (json.dumps({**STATUS, "errors": -1}).encode(), "status: 'errors' is -1"),
        (json.dumps({**STATUS, "p95_ms": {"x": 1}}).encode(), "status: 'p95_ms' is {'x': 1}"),
        (json.dumps({**STATUS, "p95_ms": 10**400}).encode(), "status: 'p95_ms' is 1000"),
        (json.dumps({**STATUS, "stream": "nats:///calls"}).encode(), "status: 'stream' is 'nats:///calls'"),
        (json.dumps({**STATUS, "stream": {}}).encode(), "status of its stream: 'source' is None"),
    ],
)
async def test_an_invalid_status_is_an_error_that_hides_no_other_endpoint(client, hub, content, message):
    hub.response = said(content)
    with pytest.raises(EndpointError) as caught:
        await client.status("iris")
    assert str(caught.value).startswith(f"the endpoint iris sent an invalid {message}")
    assert str(caught.value).endswith(f". {REMEDY}")
    hub.serves("other", "other:1", ready=False)
    assert [(one.name, one.version, one.errors) for one in await client.statuses()] == [
        ("iris", 0, None), ("other", 1, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source", None),
        ("target", 3),
        ("lag", -1),
        ("lag", 1.5),
        ("lag", True),
        ("records_per_second", None),
        ("records_per_second", -0.5),
        ("records_per_second", float("inf")),
        ("dead_letters", None),
        ("dead_letters", "3"),
        ("problem", None),
        ("problem", ["down"]),
    ],
)
async def test_an_invalid_status_of_a_stream_is_an_error(client, hub, key, value):
    hub.response = streaming(**{key: value})
    with pytest.raises(EndpointError) as caught:
        await client.status("iris")
    assert str(caught.value) == (
        f"the endpoint iris sent an invalid status of its stream: {key!r} is {value!r}. {REMEDY}"
    )
    [known] = await client.statuses()
    assert (known.version, known.stream) == (0, None)


async def test_the_status_of_a_stream_is_known(client, hub):
    hub.response = streaming()
    assert (await client.status("iris")).stream == StreamStatus(**STREAM)
    hub.response = streaming(lag=None)
    assert (await client.status("iris")).stream.lag is None


@pytest.mark.parametrize("response", [{**STATUS, "stream": None}, STATUS])
async def test_an_endpoint_without_a_stream_or_of_an_earlier_version_has_none(client, hub, response):
    hub.response = lambda: web.json_response(response)
    assert (await client.status("iris")).stream is None


@pytest.mark.parametrize(
    ("problem", "shown"),
    [
        ("no answer;\n trying again", "no answer; trying again"),
        ("\x1b[31mred", "?[31mred"),
        ("x" * 10_000, "x" * LONGEST_REASON),
    ],
)
async def test_a_problem_of_a_stream_is_one_printable_line(client, hub, problem, shown):
    hub.response = streaming(problem=problem)
    assert (await client.status("iris")).stream.problem == shown


async def test_an_image_names_its_model_when_it_answers(client, hub):
    image = "registry.example.org/lab/iris:4"
    hub.servers["serve-iris"]["user_options"] = {"role": "endpoint", "model_image": image}
    found = await client.status("iris")
    assert (found.image, found.model, found.version) == (image, "iris", 4)
    hub.response = page(502)
    found = await client.status("iris")
    assert (found.image, found.model, found.version) == (image, "", 0)


async def test_a_status_without_requests_has_no_duration(client, hub):
    hub.response = lambda: web.json_response({**STATUS, "p95_ms": None})
    assert (await client.status("iris")).p95_ms is None


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (said(b'{"error": "the input \'x\' is missing"}', 400), "400: the input 'x' is missing"),
        (said(b'{"error": "two\\nlines and \\u001b[31mred"}', 409), "409: two lines and ?[31mred"),
        (said(b'{"status": 424, "message": "The server is not running"}', 424), "424: The server is not running"),
        (said(b'{"error": {"x": 1}}', 400), "400: Bad Request"),
        (said(b'["odd"]', 400), "400: Bad Request"),
        (said(b"\xff", 500), "500: Internal Server Error"),
        (said(b"[" * 100_000, 500), "500: Internal Server Error"),
        (page(502), "502: Bad Gateway"),
        (page(302), "302: Found"),
    ],
)
@pytest.mark.parametrize("request_of", ["infer", "switch"])
async def test_a_refusal_has_the_reason_of_the_endpoint_or_its_status(client, hub, response, reason, request_of):
    hub.response = response
    with pytest.raises(EndpointError) as caught:
        await requests_of(client)[request_of]()
    assert str(caught.value) == f"the endpoint iris answered {reason}"


async def test_a_reason_is_shortened(client, hub):
    hub.response = lambda: web.json_response({"error": "x" * 10_000}, status=400)
    with pytest.raises(EndpointError) as caught:
        await client.infer("iris", "iris", {})
    assert str(caught.value) == f"the endpoint iris answered 400: {'x' * LONGEST_REASON}"


@pytest.mark.parametrize("request_of", ["infer", "switch"])
async def test_another_servers_page_is_not_an_answer(client, hub, request_of):
    hub.response = page(200)
    with pytest.raises(EndpointError, match="the endpoint iris sent an invalid answer: its content is not valid JSON"):
        await requests_of(client)[request_of]()


@pytest.mark.parametrize("request_of", ["infer", "switch"])
async def test_an_endpoint_that_is_not_ready_gets_no_request(client, hub, request_of):
    hub.serves("iris", "iris:3", ready=False)
    with pytest.raises(EndpointError) as caught:
        await requests_of(client)[request_of]()
    assert str(caught.value) == "the endpoint iris is starting or stopping; see `%serve list`"
    assert hub.requests == []


async def test_an_unknown_endpoint_is_an_error_with_the_known_ones(client):
    with pytest.raises(EndpointNotFoundError, match="there is no endpoint 'cells'; running: iris. Start one with"):
        await client.status("cells")


def requests_of(client):
    return {
        "infer": lambda: client.infer("iris", "iris", {"inputs": []}),
        "switch": lambda: client.switch("iris", "iris:4"),
    }


def options_of(model):
    return {"wait": False, "model": model, "runtime": "onnx"}


async def start(client, name, model, said=None):
    await client.start(name, options_of(model), progress=(said if said is not None else []).append, timeout=10)


async def test_a_start_sends_the_options_and_waits_until_the_endpoint_is_ready(client, hub):
    said = []
    await start(client, "cells", "cells:2", said)
    assert hub.asked["serve-cells"]["user_options"] == {"role": "endpoint", **options_of("cells:2")}
    assert said == ["endpoint cells is ready"]


async def test_a_refused_start_leaves_the_endpoint_of_another_notebook(client, hub):
    hub.refusals["serve-iris"] = (400, "ada:serve-iris is already running")
    with pytest.raises(HubError, match="is already running"):
        await start(client, "iris", "iris:3")
    assert (hub.deletes, "serve-iris" in hub.servers) == (0, True)


async def test_a_start_that_another_notebook_has_begun_is_left_to_it(client, hub):
    hub.serves("cells", "cells:1", ready=False)
    with pytest.raises(EndpointExistsError, match="another notebook has started the endpoint 'cells'.*`--name`"):
        await start(client, "cells", "cells:2")
    hub.events["serve-cells"] = [{"failed": True, "message": "No memory"}]
    with pytest.raises(WorkerStartError, match="No memory"):
        await start(client, "cells", "cells:2")
    assert (hub.deletes, "serve-cells" in hub.servers) == (0, True)


@pytest.mark.parametrize(
    ("events", "error"),
    [([{"failed": True, "message": "No memory"}], WorkerStartError), (["break"], HubUnreachableError)],
)
async def test_of_a_failed_start_nothing_is_left(client, hub, events, error):
    hub.events["serve-cells"] = events
    with pytest.raises(error):
        await start(client, "cells", "cells:2")
    assert (hub.deletes, [*hub.servers]) == (2, ["serve-iris"])


async def test_an_interrupted_start_is_undone(client, hub):
    hub.events["serve-cells"] = [{"message": "Spawning"}, "hang"]
    starting = asyncio.create_task(start(client, "cells", "cells:2"))
    async with asyncio.timeout(10):
        while "serve-cells" not in hub.servers:
            await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [*hub.servers] == ["serve-iris"]


async def test_an_endpoint_that_may_still_exist_after_a_failed_start_is_reported(client, hub):
    hub.events["serve-cells"] = [{"failed": True, "message": "No memory"}]
    hub.broken_deletes, said = 1, []
    with pytest.raises(WorkerStartError, match="No memory"):
        await start(client, "cells", "cells:2", said)
    assert [line for line in said if line.startswith("endpoint cells may still exist: the hub could not process")], said
