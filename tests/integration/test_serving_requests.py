"""Requests to an endpoint on a real hub, as they are on the wire: malformed ones are refused with what is expected."""

import json

import numpy as np
import pytest
import torch
from farandole import Endpoint
from farandole.models.store import ModelStore
from farandole.ranks.models.save import save_model
from jupyterhub.slugs import safe_slug

from hub.process import local_session
from tests.clients.hosts import url_of
from tests.integration.test_serving import Constant, headers

USER = "una"
MODEL = "v2/models/constant"
ONES, NANS = (np.full((1, 4), value, np.float32).tobytes() for value in (1, np.nan))


@pytest.fixture(scope="module")
def send(hub):
    """Send a request to an endpoint that serves version 1 of the model, by default with the token of its owner.

    ``length`` is the number of bytes of the JSON, before the binary part.
    """
    folder = hub.state / "homes" / safe_slug(USER) / "farandole" / "models"
    token = hub.token_for(USER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_MODELS", str(folder))
        save_model(Constant(1), "constant", example=torch.ones(1, 4))
        endpoint = Endpoint.start("constant:1", store=ModelStore(), progress=len, hub_url=hub.url, token=token)

    def send(method, path, body=None, length=None, token=token):
        url = url_of(hub.url, f"/user/{USER}/serve-constant/{path}")
        sent = headers(token) | ({} if length is None else {"Inference-Header-Content-Length": str(length)})
        return local_session().request(method, url, data=body, headers=sent, allow_redirects=False, timeout=30)

    yield send
    endpoint.stop()


def with_binary_part(**changed):
    """Return the JSON of a request whose data are in its binary part, with changed fields of the input."""
    given = {"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
    return {"inputs": [{**given, **changed}]}


def with_data(*values):
    """Return a request whose data are in the JSON."""
    return with_binary_part(data=[*values], parameters={})


@pytest.mark.parametrize(
    ("about", "binary", "answered"),
    [
        (with_binary_part(), ONES, (200, '"model_version":"1"')),
        (with_binary_part(), ONES[:8], (400, "the binary part does not fit the inputs")),
        (
            with_binary_part(parameters={"binary_data_size": "16"}),
            ONES,
            (400, "the binary part does not fit the inputs"),
        ),
        (with_binary_part(shape=[1, -1]), ONES, (400, "the binary part does not fit the inputs")),
        (with_binary_part(shape=["1", 4]), ONES, (400, "inputs.0.shape.0")),
        (with_binary_part(shape=[2, 2]), ONES, (400, "has the shape [2, 2]; expected x: FP32 [-1, 4]")),
        (with_binary_part(datatype="INT32"), ONES, (400, "has the datatype INT32; expected x: FP32 [-1, 4]")),
        (with_binary_part(name="y"), ONES, (400, "there is no input 'y'; expected x: FP32 [-1, 4]")),
        (with_binary_part(), NANS, (400, "the input 'x' has values that are not finite")),
        ({"inputs": []}, b"", (400, "the input 'x' is missing; expected x: FP32 [-1, 4]")),
        ({"inputs": 2 * with_binary_part()["inputs"]}, 2 * ONES, (400, "the input 'x' is there 2 times")),
        ({**with_binary_part(), "id": 5}, ONES, (400, "id: Input should be a valid string")),
        ({}, b"", (400, "inputs: Field required")),
        ([1], b"", (400, "this is not a request of the Open Inference Protocol")),
        (with_data("1", "1", "1", "1"), b"", (400, "the data of the input 'x' contain strings")),
    ],
)
def test_the_json_and_the_binary_part_of_a_request_are_checked(send, about, binary, answered):
    text = json.dumps(about).encode()
    answer = send("POST", f"{MODEL}/infer", text + binary, len(text))
    assert (answer.status_code, answered[1] in answer.text) == (answered[0], True), answer.text


@pytest.mark.parametrize("length", ["many", "-5", "9" * 5000])
def test_the_length_of_the_json_is_a_number_of_bytes(send, length):
    answer = send("POST", f"{MODEL}/infer", json.dumps(with_binary_part()).encode() + ONES, length)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"the header Inference-Header-Content-Length is '{length}'; it must be")


def test_a_model_that_returns_nan_is_named(send):
    # The sum of these values is infinite in FP32.
    answer = send("POST", f"{MODEL}/infer", json.dumps(with_data(3e38, 3e38, 3e38, 3e38)))
    assert answer.status_code == 500
    assert answer.json() == {"error": "the model returned values of 'output' that are not finite, such as NaN"}


@pytest.mark.parametrize(
    ("method", "path", "answered"),
    [
        ("POST", f"{MODEL}/versions/1/infer", (200, '"model_version":"1"')),
        ("GET", f"{MODEL}/versions/1/ready", (200, '"ready":true')),
        ("GET", f"{MODEL}/versions/1", (200, '"datatype":"FP32"')),
        ("POST", f"{MODEL}/versions/3/infer", (404, "serves version 1 of constant, and not 3; use the path v2/models")),
        ("GET", f"{MODEL}/versions/3/ready", (404, "serves version 1 of constant, and not 3; use the path v2/models")),
        ("GET", f"{MODEL}/versions/3", (404, "serves version 1 of constant, and not 3; use the path v2/models")),
        ("POST", "v2/models/other/infer", (404, "Model with name other does not exist")),
        ("GET", "v2/models/other", (404, "Model with name other does not exist")),
        ("POST", "v2/repository/models/constant/load", (403, "the owner of this endpoint switches versions")),
        ("POST", "v2/repository/models/constant/unload", (403, "the owner of this endpoint switches versions")),
        ("POST", f"{MODEL}/infer/", (404, '{"error":"Not Found"}')),
        ("GET", f"{MODEL}/", (404, '{"error":"Not Found"}')),
        ("POST", "v1/models/constant:predict", (400, "answers requests of the Open Inference Protocol (V2)")),
        ("GET", "metrics", (200, 'farandole_endpoint_requests_total{status="')),
    ],
)
def test_paths_are_answered(send, method, path, answered):
    assert send("POST", f"{MODEL}/infer", json.dumps(with_data(1, 1, 1, 1))).json()["outputs"][0]["data"] == [1.0]
    answer = send(method, path, json.dumps(with_data(1, 1, 1, 1)) if method == "POST" else None)
    assert (answer.status_code, answered[1] in answer.text) == (answered[0], True), answer.text


def counted(send, status):
    """Return how many requests for inference have been answered with a status, as the endpoint's metrics say."""
    name = f'farandole_endpoint_requests_total{{status="{status}"}} '
    return sum(float(line.removeprefix(name)) for line in send("GET", "metrics").text.splitlines() if name in line)


@pytest.mark.parametrize(
    "body", [lambda: b" " * 50_000_000, lambda: iter([b" " * 2**20] * 33)], ids=["with-a-length", "in-chunks"]
)
def test_a_body_that_is_too_large_is_refused_and_counted(send, body):
    before = counted(send, 413)
    answer = send("POST", f"{MODEL}/infer", body())
    assert answer.status_code == 413
    assert "a request may have 32 MiB" in answer.json()["error"]
    assert send("POST", f"{MODEL}/infer", json.dumps(with_data(1, 1, 1, 1))).status_code == 200
    assert send("POST", f"{MODEL}/infer", json.dumps(with_data(1, 1, 1, 1)), token="unknown").status_code == 403
    assert (counted(send, 413), counted(send, 403)) == (before + 1, 0)
