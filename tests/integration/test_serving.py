"""Endpoints on a real hub: a model is saved, served, called, replaced and shared."""

import threading
import time
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
import tritonclient.http
import tritonclient.utils
from farandole import Endpoint
from farandole.exceptions import (
    EndpointError,
    EndpointExistsError,
    EndpointNotFoundError,
    ModelInUseError,
    QuotaError,
    UsageError,
    WorkerStartError,
)
from farandole.models.model import WEIGHTS_FILE
from farandole.models.store import ModelStore
from farandole.ranks.models.save import save_model
from jupyterhub.slugs import safe_slug
from torch import nn

from hub.process import local_session, wait_until
from tests.clients.hosts import url_of

USER = "ida"
EXPIRES_SECONDS, REVOKED_SECONDS = 6, 10.0
ANSWER_SECONDS = 60.0
APP = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"{self.path} {self.headers.get('Authorization')} {self.headers.get('Cookie')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


class Constant(nn.Module):
    """Returns its version for each row, so that an answer shows which version computed it."""

    def __init__(self, version):
        super().__init__()
        self.version = nn.Parameter(torch.tensor(float(version)))

    def forward(self, x):
        return x.sum(1, keepdim=True) * 0 + self.version


@pytest.fixture(scope="module")
def store(hub):
    """The model store in the home of the user, with three versions of a model, and two that cannot be served."""
    folder = hub.state / "homes" / safe_slug(USER) / "farandole" / "models"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_MODELS", str(folder))
        for version in (1, 2, 3):
            save_model(Constant(version), "constant", example=torch.ones(1, 4))
        save_model(Constant(4), "constant")
        damaged = save_model(Constant(5), "constant", example=torch.ones(1, 4))
        save_model(nn.Linear(4, 2), "plain")
        store = ModelStore()
        weights = store.find(damaged).folder / WEIGHTS_FILE
        weights.chmod(0o644)
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
        yield store


@pytest.fixture(scope="module")
def where(hub):
    return {"hub_url": hub.url, "token": hub.token_for(USER)}


@pytest.fixture(scope="module")
def endpoint(store, where):
    """An endpoint that serves version 1 of the model."""
    found = Endpoint.start("constant:1", store=store, progress=len, **where)
    yield found
    found.stop()


def headers(token):
    return {"Authorization": f"Bearer {token}"}


def call(hub, endpoint, token, rows=1):
    body = {"inputs": [{"name": "x", "shape": [rows, 4], "datatype": "FP32", "data": [1.0] * 4 * rows}]}
    url = url_of(hub.url, f"/user/{USER}/serve-{endpoint.name}/v2/models/constant/infer")
    return local_session().post(url, json=body, headers=headers(token), timeout=30)


def test_an_endpoint_answers_the_example_of_its_model(endpoint):
    outputs = endpoint.infer(x=np.ones((3, 4)))
    assert (outputs["output"].dtype, outputs["output"].tolist(), outputs.version) == (np.float32, [[1.0]] * 3, 1)
    status = endpoint.status()
    assert (status.model, status.version, status.ready) == ("constant", 1, True)
    assert status.url.endswith(f"/user/{USER}/serve-constant/")
    assert [one.name for one in Endpoint.all(hub_url=endpoint._where[0], token=endpoint._where[1])] == ["constant"]


def client_of(hub, endpoint):
    """Return a client of the protocol for the endpoint, and the headers of its requests."""
    where = urlsplit(url_of(hub.url, f"/user/{USER}/serve-constant"))
    # The client resolves names below localhost with the machine's resolver, which may not know them.
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{where.port}{where.path}")
    return client, {**headers(endpoint.token(days=1)), "Host": where.netloc}


def test_a_client_of_the_protocol_understands_it(hub, endpoint):
    client, given = client_of(hub, endpoint)
    assert client.is_server_live(headers=given)
    assert client.is_server_ready(headers=given)
    assert client.is_model_ready("constant", headers=given)
    metadata = client.get_model_metadata("constant", headers=given)
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    for binary in (True, False):
        sent = tritonclient.http.InferInput("x", [2, 4], "FP32")
        sent.set_data_from_numpy(np.ones((2, 4), np.float32), binary_data=binary)
        wanted = [tritonclient.http.InferRequestedOutput("output", binary_data=binary)]
        answer = client.infer("constant", [sent], outputs=wanted, headers=dict(given))
        assert answer.as_numpy("output").tolist() == [[1.0], [1.0]]
        assert answer.get_response()["model_version"] == "1"


def test_versions_are_switched_while_requests_are_answered(hub, endpoint, store):
    token, found, stop = endpoint.token(days=1), [], threading.Event()

    def keep_calling():
        while not stop.is_set():
            answer = call(hub, endpoint, token, rows=2)
            body = answer.json()
            found.append((answer.status_code, body.get("model_version"), body.get("outputs", [{}])[0].get("data")))

    threads = [threading.Thread(target=keep_calling) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for version in (2, 3, 1, 2):
            endpoint.switch(f"constant:{version}", store=store)
            before = len(found)
            wait_until(lambda since=before, by=str(version): by in [one for _, one, _ in found[since:]], ANSWER_SECONDS)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {status for status, _, _ in found} == {200}
    assert all(data == [float(version)] * 2 for _, version, data in found)
    assert endpoint.status().version == 2
    with pytest.raises(ModelInUseError, match="constant:2 is being served"):
        store.remove("constant:2")
    endpoint.switch("constant:1", store=store)


def test_a_wrong_switch_is_refused_before_the_endpoint_is_asked(endpoint, store):
    with pytest.raises(EndpointError, match="plain:1 was saved without an example"):
        endpoint.switch("plain:1", store=store)
    assert endpoint.infer(x=np.ones((1, 4)))["output"].tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("constant:9", "the model 'constant' has no version 9"),
        ("constant:no", "'no' in 'constant:no' is not a version"),
        ("plain:1", "this endpoint serves constant; start another one for plain"),
        ("constant:4", "constant:4 was saved without an example"),
        ("constant:5", f"constant:5 is damaged: {WEIGHTS_FILE} has another content"),
    ],
)
def test_a_wrong_switch_keeps_the_version(hub, endpoint, where, key, reason):
    answer = hub.api(where["token"], "POST", f"/user/{USER}/serve-constant/farandole/version", {"model": key})
    assert (answer.status_code, reason in answer.json()["error"]) == (409, True), answer.text
    outputs = endpoint.infer(x=np.ones((1, 4)))
    assert (outputs["output"].tolist(), outputs.version) == ([[1.0]], 1)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": np.ones((1, 3))}, r"400: the input 'x' has the shape \[1, 3\]; expected x: FP32 \[-1, 4\]"),
        ({"y": np.ones((1, 4))}, r"400: there is no input 'y'; expected x: FP32 \[-1, 4\]"),
        ({"x": np.full((1, 4), np.nan)}, "400: the input 'x' has values that are not finite"),
        ({"x": np.ones((0, 4))}, "400: the inputs have no rows"),
    ],
)
def test_wrong_inputs_are_named_with_what_is_expected(endpoint, inputs, message):
    with pytest.raises(EndpointError, match=message):
        endpoint.infer(**inputs)


def test_values_in_binary_form_must_be_finite(hub, endpoint):
    client, given = client_of(hub, endpoint)
    sent = tritonclient.http.InferInput("x", [1, 4], "FP32")
    sent.set_data_from_numpy(np.full((1, 4), np.nan, np.float32), binary_data=True)
    with pytest.raises(tritonclient.utils.InferenceServerException, match="'x' has values that are not finite"):
        client.infer("constant", [sent], headers=given)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("v1/models/constant:predict", b'{"instances": [[1]]}', "answers requests of the Open Inference Protocol (V2)"),
        ("v2/models/constant/infer", b"{", "this is not a request of the Open Inference Protocol"),
        ("v2/models/constant/infer", b"[1]", "this is not a request of the Open Inference Protocol"),
        ("farandole/version", b"{", 'send {"model": "NAME:VERSION"}'),
    ],
)
def test_other_requests_are_refused_with_what_is_expected(hub, endpoint, where, path, body, message):
    url = url_of(hub.url, f"/user/{USER}/serve-constant/{path}")
    answer = local_session().post(url, data=body, headers=headers(where["token"]), timeout=30)
    assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text


def test_only_tokens_for_the_endpoint_are_admitted(hub, endpoint, store, where):
    token = endpoint.token(days=1)
    assert call(hub, endpoint, token).status_code == 200
    for other in (
        "",
        "unknown",
        hub.token_for("eve"),
        hub.token_for("eve", ["access:servers!server=eve/serve-constant"]),
    ):
        assert call(hub, endpoint, other).status_code == 403, other
    second = Endpoint.start("constant:1", name="second", store=store, progress=len, **where)
    try:
        assert call(hub, second, token).status_code == 403
        assert call(hub, endpoint, second.token(days=1)).status_code == 403
    finally:
        second.stop()


def test_a_token_of_a_caller_changes_nothing(hub, endpoint):
    token = endpoint.token(days=1)
    answer = hub.api(token, "POST", f"/user/{USER}/serve-constant/farandole/version", {"model": "constant:2"})
    assert answer.status_code == 403
    own = f"/hub/api/farandole/users/{USER}/servers/serve-constant"
    for method, path in (("POST", "tokens"), ("GET", "shares"), ("PUT", "shares/eve")):
        assert hub.api(token, method, f"{own}/{path}", {}).status_code == 403, path
    assert hub.api(token, "DELETE", f"/hub/api/users/{USER}/servers/serve-constant").status_code in {403, 404}


def test_an_expired_or_revoked_token_stops_working(hub, endpoint):
    token = endpoint.token(days=EXPIRES_SECONDS / 86_400)
    assert call(hub, endpoint, token).status_code == 200
    until_refused(hub, endpoint, token, EXPIRES_SECONDS + REVOKED_SECONDS)
    token = endpoint.token(days=1)
    assert call(hub, endpoint, token).status_code == 200
    admin = hub.browser(USER)
    revoke(hub, admin, "Callers of serve-constant")
    until_refused(hub, endpoint, token, REVOKED_SECONDS)


def revoke(hub, browser, note):
    """Revoke all tokens with a note, as the hub's Token page does."""
    token = browser.make_token()
    found = hub.api(token, "GET", f"/hub/api/users/{USER}/tokens").json()["api_tokens"]
    for one in found:
        if one["note"] == note:
            assert hub.api(token, "DELETE", f"/hub/api/users/{USER}/tokens/{one['id']}").status_code == 204


def until_refused(hub, endpoint, token, seconds):
    since = time.monotonic()
    while call(hub, endpoint, token).status_code != 403:
        assert time.monotonic() - since < seconds
        time.sleep(0.2)


def test_an_endpoint_is_shared_with_another_user(hub, endpoint):
    scopes = [f"access:servers!server={USER}/serve-constant"]
    guest = hub.browser("gus")
    endpoint.share("gus")
    assert endpoint.shares == ["gus"]
    token = guest.make_token(scopes)
    assert call(hub, endpoint, token).status_code == 200
    endpoint.unshare("gus")
    assert endpoint.shares == []
    until_refused(hub, endpoint, token, REVOKED_SECONDS)
    with pytest.raises(Exception, match="There is no user 'nobody' who has logged in here"):
        endpoint.share("nobody")


def test_names_are_checked_before_a_server_is_started(endpoint, store, where):
    with pytest.raises(EndpointExistsError, match="there is an endpoint 'constant'"):
        Endpoint.start("constant:2", store=store, progress=len, **where)
    with pytest.raises(EndpointNotFoundError, match="there is no endpoint 'other'; running: constant"):
        Endpoint("other", **where).stop()
    with pytest.raises(UsageError, match="cannot be an endpoint's name"):
        Endpoint("No", **where)
    with pytest.raises(UsageError, match="give one of them"):
        Endpoint.start(store=store, **where)


def test_a_user_has_a_largest_number_of_endpoints(endpoint, store, where):
    command = ["python", "-m", "http.server", "--bind", "127.0.0.1", "{port}"]
    others = [Endpoint.start(command=command, name=f"more-{n}", progress=len, **where) for n in range(3)]
    try:
        with pytest.raises(QuotaError, match="You have 4 endpoints and this hub allows 4 for each user"):
            Endpoint.start("constant:1", name="one-more", store=store, progress=len, **where)
    finally:
        for other in others:
            other.stop()


def test_a_command_runs_behind_the_login(hub, where, tmp_path):
    script = tmp_path / "app.py"
    script.write_text(APP)
    app = Endpoint.start(command=["python", str(script)], name="app", progress=len, **where)
    try:
        token = app.token(days=1)
        path = f"/user/{USER}/serve-app/hello?x=1"
        url = url_of(hub.url, path)
        assert local_session().get(url, headers=headers("unknown"), timeout=30).status_code == 403
        redirected = local_session().get(url, allow_redirects=False, timeout=30)
        assert (redirected.status_code, "/hub/api/oauth2/authorize" in redirected.headers["Location"]) == (302, True)
        answer = hub.api(token, "GET", path)
        assert (answer.status_code, answer.text) == (200, "/hello?x=1 None None")
        upgrade = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "eA==",
        }
        refused = local_session().get(url, headers=upgrade, timeout=30)
        assert refused.status_code == 403
    finally:
        app.stop()


def test_a_command_that_does_not_listen_is_a_failed_start(where):
    with pytest.raises(WorkerStartError, match="endpoint missing did not start"):
        Endpoint.start(command=["python", "missing.py"], name="missing", progress=len, **where)
    with pytest.raises(EndpointNotFoundError, match="there is no endpoint 'missing'"):
        Endpoint("missing", **where).status()


def test_an_endpoint_outlives_the_notebook_of_its_user(hub, endpoint):
    browser = hub.browser(USER)
    browser.start_notebook()
    browser.stop_notebook()
    assert endpoint.infer(x=np.ones((1, 4)))["output"].tolist() == [[1.0]]
