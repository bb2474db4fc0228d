"""Tests that a driver reaches the hosts of all users, although Python does not resolve names below localhost."""

import asyncio
import socket
from contextlib import asynccontextmanager

import aiohttp
import psutil
import pytest
from aiohttp import web
from farandole.driver.workers.addresses import Address, LocalhostResolver, open_session
from farandole.driver.workers.client import HubClient
from farandole.driver.workers.source import HubWorkers
from farandole.exceptions import HubError, WorkerStartError

from hub.process import wait_until

PUBLIC = "http://hub.localhost:8000"
URL = "http://ada.hub.localhost:8000/user/ada/main-w0/"


class Proxy:
    """A fake of the hub's proxy. It routes requests by host, and redirects unknown requests to the hub's own host."""

    def __init__(self):
        self.hosts = []

    async def answer(self, request):
        self.hosts.append(request.host)
        host = request.host.partition(":")[0]
        if host == "hub.localhost" and request.path.startswith("/hub/api/user"):
            servers = {"main-w0": {"ready": True, "url": URL}}
            return web.json_response({"name": "ada", "servers": servers})
        if host == "hub.localhost" and request.path.startswith("/hub/api/farandole/users/ada/servers/"):
            return web.json_response({"token": "for one worker"})
        if host == "ada.hub.localhost" and request.path == "/user/ada/main-w0/api/kernels/k/channels":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_bytes(b"hello")
            return socket
        if host == "ada.hub.localhost" and request.path == "/user/ada/main-w0/api/sessions":
            return web.json_response([{"path": "rank-0", "kernel": {"id": "k"}}])
        raise web.HTTPFound(f"{PUBLIC}{request.path_qs}")

    @asynccontextmanager
    async def served(self):
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()


async def test_servers_connect_to_the_proxy_and_name_the_public_host(monkeypatch):
    proxy = Proxy()
    async with proxy.served() as port, aiohttp.ClientSession() as session:
        monkeypatch.setenv("FARANDOLE_HUB_URL", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
        monkeypatch.setenv("JUPYTERHUB_HOST", PUBLIC)
        # When the panel attaches to a cluster, it passes the address that its own client uses.
        panel = HubWorkers.from_environment(None, None, session).client.url
        for given in (None, f"http://127.0.0.1:{port}", panel):
            [worker] = await HubWorkers.from_environment(given, None, session).find("main")
            assert worker.url == f"http://127.0.0.1:{port}/user/ada/main-w0/"
            assert await worker.kernels() == {0: "k"}
            socket = await worker.kernel_socket("k", "s", "v1.kernel.websocket.jupyter.org")
            assert (await socket.receive()).data == b"hello"
            await socket.close()
    assert set(proxy.hosts) == {"hub.localhost:8000", "ada.hub.localhost:8000"}


async def test_a_laptops_hub_url_works_below_localhost():
    proxy = Proxy()
    async with proxy.served() as port:
        connector = aiohttp.TCPConnector(resolver=LocalhostResolver())
        async with aiohttp.ClientSession(connector=connector) as session:
            client = HubClient(url=f"http://hub.localhost:{port}", token="secret", session=session)
            assert await client.user() == "ada"
            worker = await HubWorkers(client).worker("main-w0", URL.replace("8000", str(port)))
            assert await worker.kernels() == {0: "k"}
    assert set(proxy.hosts) == {f"hub.localhost:{port}", f"ada.hub.localhost:{port}"}


async def test_another_address_of_the_hub_is_an_error_with_the_right_one():
    async with Proxy().served() as port, aiohttp.ClientSession() as session:
        client = HubClient(url=f"http://127.0.0.1:{port}", token="secret", session=session)
        with pytest.raises(
            HubError, match=rf"does not serve http://127.0.0.1:{port}/; its own address is {PUBLIC}. Use"
        ):
            await client.user()


async def test_the_hubs_redirect_in_place_of_a_worker_is_not_followed():
    async with Proxy().served() as port, aiohttp.ClientSession() as session:
        client = HubClient(url=f"http://127.0.0.1:{port}", token="secret", session=session, public=PUBLIC)
        gone = await HubWorkers(client).worker("main-w1", URL.replace("main-w0", "main-w1"))
        with pytest.raises(WorkerStartError, match="worker main-w1 does not answer") as refused:
            await gone.info()
        assert refused.value.status == 302
        assert refused.value.__notes__[0].startswith("GET farandole/worker: 302")
        with pytest.raises(WorkerStartError):
            async with asyncio.timeout(5):
                await anext(gone.follow("r", "k", 0))


@pytest.mark.parametrize(
    ("address", "given", "url", "host"),
    [
        (Address.of("http://proxy:8000", PUBLIC), URL, "http://proxy:8000/user/ada/main-w0/", "ada.hub.localhost:8000"),
        (Address.of("http://proxy:8000"), "/user/ada/main-w0/", "http://proxy:8000/user/ada/main-w0/", ""),
        (Address.of("https://hub.test/"), "https://ada.hub.test/user/ada/x", "https://ada.hub.test/user/ada/x/", ""),
        # This hub has a public address, but no hosts for users.
        (Address.of("http://proxy", "https://hub.test"), "/user/ada/x/", "http://proxy/user/ada/x/", "hub.test"),
    ],
)
def test_the_address_of_a_server(address, given, url, host):
    assert address.server(given) == Address(url=url, host=host)
    assert address.server(given).headers == ({"Host": host} if host else {})


async def test_closed_sessions_leave_no_descriptors_open():
    # A rank or a notebook that calls an endpoint often would otherwise have more than the system allows.
    before = psutil.Process().num_fds()
    for _ in range(5):
        async with open_session() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get("http://hub.localhost:1/")
    # Another thread closes those of the resolver.
    await asyncio.to_thread(wait_until, lambda: psutil.Process().num_fds() <= before, 20)


async def test_names_below_localhost_never_resolve_to_ipv6():
    # The hub does not listen at ::1, but another program might, and would get the driver's token.
    for name in ("hub.localhost", "ada.hub.localhost."):
        found = await LocalhostResolver().resolve(name, 8000, socket.AF_UNSPEC)
        assert {each["host"] for each in found} == {"127.0.0.1"}
