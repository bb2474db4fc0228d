"""Only tokens that the hub accepts for the endpoint are admitted."""

import asyncio

import httpx
import pytest
from farandole.serving.bodies import BINARY_PART, MOST_BYTES, BodyLimit, JsonBodies
from farandole.serving.login import HubLogin
from farandole.serving.prefix import Prefix
from starlette.requests import Request
from starlette.responses import JSONResponse
from tornado.web import HTTPError

CALLER, OWNER = "access:servers!server=ada/serve-iris", "servers!user=ada"


class Hub:
    """Knows the scopes of some tokens, and counts the questions."""

    def __init__(self):
        self.tokens = {"caller": [CALLER], "owner": [CALLER, OWNER], "other": ["access:servers!server=ada/serve-x"]}
        self.asked = 0

    async def user_for_token(self, token, *, sync):
        assert not sync
        self.asked += 1
        await asyncio.sleep(0.01)
        if token == "broken":
            raise HTTPError(500, "Failed to connect to Hub API at 'http://10.0.0.7:8081/hub/api'.")
        return {"name": "ada", "scopes": self.tokens[token]} if token in self.tokens else None

    def check_scopes(self, wanted, user):
        return wanted & set(user["scopes"])


async def answering(scope, receive, send):
    request = Request(scope, receive)
    body = await request.body()
    found = {"path": scope["path"], "bytes": len(body), "type": request.headers.get("content-type")}
    await JSONResponse(found)(scope, receive, send)


@pytest.fixture
def hub():
    return Hub()


@pytest.fixture
def client(hub):
    app = HubLogin(answering, hub, callers={CALLER}, owners={OWNER}, management="/farandole/")
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://endpoint")


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/v2/models", "caller", 200),
        ("/v2/models", "owner", 200),
        ("/v2/models", "other", 403),
        ("/v2/models", "unknown", 403),
        ("/v2/models", "broken", 503),
        ("/farandole/version", "owner", 200),
        ("/farandole/version", "caller", 403),
        ("/metrics", "unknown", 403),
    ],
)
async def test_a_token_needs_a_scope_of_the_endpoint(client, path, token, status):
    for scheme in ("Bearer", "token"):
        answer = await client.get(path, headers={"Authorization": f"{scheme} {token}"})
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic YTpi"])
async def test_a_request_without_a_token_is_told_how_to_send_one(client, hub, header):
    answer = await client.get("/v2/models", headers={} if header is None else {"Authorization": header})
    assert answer.status_code == 403
    assert "`%serve token` makes one" in answer.json()["error"]
    assert hub.asked == 0


async def test_the_internal_address_of_the_hub_is_only_in_the_log(client, caplog):
    answer = await client.get("/v2/models", headers={"Authorization": "Bearer broken"})
    assert answer.json() == {"error": "the hub cannot check the token now; try again in a minute"}
    assert "Failed to connect to Hub API at 'http://10.0.0.7:8081/hub/api'." in caplog.text


@pytest.mark.parametrize(("kind", "passed"), [("lifespan", True), ("websocket", False), ("other", False)])
async def test_only_http_requests_and_the_start_are_passed_on(hub, kind, passed):
    reached, sent = [], []

    async def app(scope, receive, send):
        reached.append(scope["type"])

    async def send(message):
        sent.append(message["type"])

    headers = [(b"authorization", b"Bearer owner")]
    scope = {"type": kind, "path": "/v2/models", "headers": headers, "subprotocols": []}
    await HubLogin(app, hub, callers={CALLER}, owners={OWNER}, management="/farandole/")(scope, None, send)
    assert (reached, sent) == (([kind], []) if passed else ([], ["websocket.close"]))
    assert hub.asked == 0


async def test_requests_at_the_same_time_ask_the_hub_once(client, hub):
    headers = {"Authorization": "Bearer caller"}
    answers = await asyncio.gather(*(client.get("/v2/models", headers=headers) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert hub.asked == 1


def client_of(app):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://endpoint")


async def test_the_prefix_is_removed():
    client = client_of(Prefix(answering, "/user/ada/serve-iris/"))
    assert (await client.get("/user/ada/serve-iris/v2/models")).json()["path"] == "/v2/models"
    for path in ("/user/ada/serve-iris", "/user/ada/serve-irises/v2", "/v2/models", "/"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (404, {"error": "this endpoint is at /user/ada/serve-iris/"})


async def test_a_large_body_is_refused_by_its_announced_size():
    answer = await client_of(BodyLimit(answering)).post("/", content=b"x" * (MOST_BYTES + 1))
    assert answer.status_code == 413
    assert "a request may have 32 MiB" in answer.json()["error"]
    answer = await client_of(BodyLimit(answering)).post("/", content=b"x" * MOST_BYTES)
    assert answer.json()["bytes"] == MOST_BYTES


@pytest.mark.parametrize(("headers", "kind"), [({}, "application/json"), ({BINARY_PART: "3"}, None)])
async def test_a_body_without_a_binary_part_is_json(headers, kind):
    assert (await client_of(JsonBodies(answering)).post("/", content=b"{}", headers=headers)).json()["type"] == kind
