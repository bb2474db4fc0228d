"""Tests for the hub's check of origins: which requests reach the handlers, and which are redirected or refused."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import RequestHandler

from spawner_config.origins.application import FarandoleHub

OWN = "http://hub.localhost:8000"
THROUGH_THE_PROXY = {"X-Forwarded-For": "10.0.0.7"}


class Anything(RequestHandler):
    """A handler that stands in for all handlers of the hub."""

    def check_xsrf_cookie(self):
        pass

    def get(self):
        self.set_cookie("jupyterhub-hub-login", "secret")
        self.finish("the hub")

    head = post = put = delete = get


@asynccontextmanager
async def hub(subdomain_host=OWN):
    application = FarandoleHub(subdomain_host=subdomain_host)
    application.handlers = [("/.*", Anything)]
    application.tornado_settings = {"xsrf_cookies": True}
    application.init_tornado_application()
    listener, port = bind_unused_port()
    server = HTTPServer(application.tornado_application, xheaders=True)
    server.add_socket(listener)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield session
    finally:
        server.stop()
        await server.close_all_connections()


async def ask(session, method, path, host, *, proxied=True, **headers):
    sent = {"Host": host, **(THROUGH_THE_PROXY if proxied else {}), **headers}
    async with session.request(method, path, headers=sent, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location"), await answer.text(), answer.headers.get("Set-Cookie")


@pytest.mark.parametrize(
    "host",
    ["ada.hub.localhost:8000", "127.0.0.1:8000", "hub", "proxy:8000", "evil.test", "hub.localhost.", "localhost"],
)
async def test_another_host_only_leads_to_the_hubs_own(host):
    async with hub() as session:
        for path in ("/hub/login", "/user/ada/lab?a=b%20c", "/hub/api/user", "/hub/home", "/"):
            status, location, text, cookie = await ask(session, "GET", path, host)
            assert (status, location, text, cookie) == (302, OWN + path, "", None)
        assert (await ask(session, "HEAD", "/hub/login", host))[:2] == (302, f"{OWN}/hub/login")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_another_host_keeps_browsers_with_https(method):
    header = "Strict-Transport-Security"
    for own, wanted in ((OWN, None), ("https://hub.example.org", "max-age=31536000")):
        async with (
            hub(own) as session,
            session.request(method, "/", headers={"Host": "ada.hub.example.org"}, allow_redirects=False) as answer,
        ):
            assert answer.headers.get(header) == wanted


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_another_host_refuses_what_changes_something(method):
    async with hub() as session:
        status, _, text, cookie = await ask(session, method, "/hub/login", "ada.hub.localhost:8000")
        assert (status, cookie) == (421, None)
        assert f"Open {OWN}" in text


async def test_a_request_for_a_server_that_does_not_run_says_so():
    async with hub() as session:
        path = "/user/ada/serve-iris/v2/models/iris/infer"
        status, _, text, cookie = await ask(session, "POST", path, "ada.hub.localhost:8000")
        assert (status, cookie) == (503, None)
        assert text == f"No server runs at this address. Its user can start it at {OWN}/hub/home\n"
        foreign = {"Origin": "http://eve.hub.localhost:8000"}
        assert (await ask(session, "POST", path, "hub.localhost:8000", **foreign))[0] == 421


@pytest.mark.parametrize("host", ["hub.localhost:8000", "HUB.localhost", "hub.localhost:80"])
async def test_its_own_host_reaches_the_hub(host):
    async with hub() as session:
        for method in ("GET", "POST", "DELETE"):
            assert (await ask(session, method, "/hub/login", host))[2] == "the hub"


@pytest.mark.parametrize("host", ["hub:8081", "hub-api:8081", "10.0.0.3:8081", "127.0.0.1:40123"])
async def test_programs_reach_the_api_at_the_hubs_own_port(host):
    async with hub() as session:
        for path in (
            "/hub/api",
            "/hub/api/users/ada/activity",
            "/hub/health",
            "/hub/error/503?url=%2F",
            "/hub/metrics",
        ):
            assert (await ask(session, "GET", path, host, proxied=False))[2] == "the hub"
        assert (await ask(session, "POST", "/hub/api/oauth2/token", host, proxied=False))[2] == "the hub"
        # The hub's own port serves neither pages nor logins, because browsers would send the login cookie to all ports.
        assert (await ask(session, "GET", "/hub/login", host, proxied=False))[1] == f"{OWN}/hub/login"
        assert (await ask(session, "POST", "/hub/login", host, proxied=False))[0] == 421


@pytest.mark.parametrize(
    "origin", ["http://ada.hub.localhost:8000", "null", "http://hub.localhost:9000", "https://x.org"]
)
async def test_a_page_of_another_origin_changes_nothing(origin):
    async with hub() as session:
        status, _, text, _ = await ask(session, "POST", "/hub/login", "hub.localhost:8000", Origin=origin)
        assert status == 421
        assert origin in text
        assert (await ask(session, "GET", "/hub/login", "hub.localhost:8000", Origin=origin))[2] == "the hub"


@pytest.mark.parametrize("scheme", ["token", "Token", "bearer", "Bearer"])
async def test_requests_with_a_token_are_admitted_from_every_origin(scheme):
    async with hub() as session:
        token = {"Authorization": f"{scheme} abc", "Origin": "https://x.org"}
        assert (await ask(session, "POST", "/hub/api/users", "hub.localhost:8000", **token))[2] == "the hub"


@pytest.mark.parametrize("sent", ["Basic YWRhOng=", "Negotiate YWRh", "Digest username=ada", "", "token", "tokens abc"])
async def test_what_browsers_send_as_authorization_is_no_token(sent):
    async with hub() as session:
        headers = {"Authorization": sent, "Origin": "http://ada.hub.localhost:8000"}
        assert (await ask(session, "POST", "/hub/api/users", "hub.localhost:8000", **headers))[0] == 421


async def test_the_hubs_own_pages_change_something():
    async with hub() as session:
        assert (await ask(session, "POST", "/hub/login", "hub.localhost:8000", Origin=OWN))[2] == "the hub"


async def test_the_hubs_own_pages_change_something_without_a_referrer():
    async with hub() as session:
        hidden = {"Origin": "null", "Sec-Fetch-Site": "same-origin"}
        assert (await ask(session, "POST", "/hub/login", "hub.localhost:8000", **hidden))[2] == "the hub"
        for site in ("same-site", "cross-site", "none"):
            hidden["Sec-Fetch-Site"] = site
            assert (await ask(session, "POST", "/hub/login", "hub.localhost:8000", **hidden))[0] == 421
        foreign = {"Origin": "http://ada.hub.localhost:8000", "Sec-Fetch-Site": "same-origin"}
        assert (await ask(session, "POST", "/hub/login", "hub.localhost:8000", **foreign))[0] == 421


async def test_every_host_has_the_health_check_and_nothing_below_it():
    async with hub() as session:
        for host in ("10.0.0.5:8000", "ada.hub.localhost:8000", "hub.localhost:8000"):
            for method in ("GET", "HEAD"):
                assert (await ask(session, method, "/hub/health", host))[0] == 200
        for path in ("/hub/health/", "/hub/healthy", "/hub/health/../login", "/hub/api/health", "/hub/metrics"):
            assert (await ask(session, "GET", path, "10.0.0.5:8000"))[0] == 302, path
        assert (await ask(session, "POST", "/hub/health", "10.0.0.5:8000"))[0] == 421


async def test_no_path_leads_elsewhere():
    async with hub() as session:
        host, port = session._base_url.host, session._base_url.port
        for target in ("@evil.test/", "http://evil.test/hub/login"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET {target} HTTP/1.1\r\nHost: ada.hub.localhost\r\nConnection: close\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            assert "evil" not in answer
            assert "302" not in answer.splitlines()[0]


async def test_with_one_origin_every_host_reaches_the_hub():
    async with hub(subdomain_host="") as session:
        assert (await ask(session, "POST", "/hub/login", "10.0.0.5:8000"))[2] == "the hub"
