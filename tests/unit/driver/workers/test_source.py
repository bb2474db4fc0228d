"""Tests for `HubWorkers` and `HubClient` with a fake of JupyterHub's REST API, including its refusals and delays."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from farandole.cli import credentials
from farandole.cli.credentials import Login
from farandole.driver.core.status import gpu_line
from farandole.driver.workers.client import REQUESTS_AT_ONCE, STOPS_AT_ONCE, HubClient
from farandole.driver.workers.notices import Notice
from farandole.driver.workers.source import HubWorkers
from farandole.driver.workers.worker import WorkerOptions
from farandole.exceptions import (
    ClusterExistsError,
    DeadlineError,
    HubBusyError,
    HubError,
    HubUnreachableError,
    NoClusterError,
    PermissionDeniedError,
    QuotaError,
    WorkerStartError,
)

TOKEN = "secret"
OPTIONS = WorkerOptions(cluster="c", profile="cpu", ranks=2)
READY = {"progress": 100, "ready": True, "message": "Server ready", "url": "/user/ada/{name}/"}


INFO = {
    "worker": "", "ranks": 1, "profile": "cpu", "host": "h", "address": "a", "node": "n/1", "backends": ["torch"]
}  # fmt: skip
NOTICE = {"by": "olga", "at": 1.5, "text": "Bye.", "servers": ["", "c-w0"]}


class FakeHub:
    """A fake of the REST API that the client uses. `events` holds the progress events of each server's start."""

    def __init__(self):
        self.servers = {}
        self.asked = {}
        self.events = {}
        self.refusals = {}
        self.throttled = 0
        self.retry_after = "0"
        self.at_once = 0
        self.most_at_once = 0
        self.deletes = 0
        self.busy_deletes = 0
        self.removed_elsewhere = False
        self.broken_deletes = 0
        self.busy_starts = 0
        self.start_seconds = 0.0
        self.stop_seconds = 0.0
        self.gpus = None
        self.notices = None
        self.tokens = None
        self.seen = []

    def application(self):
        app = web.Application(middlewares=[self.login])
        app.router.add_get("/hub/api/user", self.user)
        app.router.add_get("/hub/api/users/ada", self.user)
        if self.gpus is not None:
            app.router.add_get("/hub/api/farandole/gpus", self.get_gpus)
        if self.notices is not None:
            app.router.add_get("/hub/api/farandole/notices", self.get_notices)
        if self.tokens is not None:
            app.router.add_post("/hub/api/farandole/users/ada/servers/{name}/token", self.token)
        app.router.add_post("/hub/api/users/ada/servers/{name}", self.start)
        app.router.add_get("/user/ada/{name}/farandole/worker", self.info)
        app.router.add_delete("/hub/api/users/ada/servers/{name}", self.stop)
        app.router.add_get("/hub/api/users/ada/servers/{name}/progress", self.progress)
        return app

    async def token(self, request):
        name = request.match_info["name"]
        self.tokens[name] = self.tokens.get(name, 0) + 1
        return web.json_response({"token": f"only for {name}"})

    async def info(self, request):
        self.seen.append(request.headers["Authorization"])
        return web.json_response(INFO)

    @web.middleware
    async def login(self, request, handler):
        if request.path.startswith("/user/"):
            return await handler(request)
        if request.headers.get("Authorization") != f"token {TOKEN}":
            return web.json_response({"status": 403, "message": None}, status=403)
        return await handler(request)

    async def user(self, request):
        return web.json_response({"name": "ada", "servers": self.servers})

    async def get_gpus(self, _request):
        return web.json_response(self.gpus)

    async def get_notices(self, _request):
        return web.Response(body=self.notices, content_type="application/json")

    async def start(self, request):
        name = request.match_info["name"]
        if name in self.refusals:
            status, message = self.refusals[name]
            return web.json_response({"status": status, "message": message}, status=status)
        if self.throttled:
            self.throttled -= 1
            message = "Too many users trying to log in right now. Try again in 10 seconds."
            return web.json_response({"message": message}, status=429, headers={"Retry-After": self.retry_after})
        self.asked[name] = await request.json()
        # The hub completes a request even if the client disconnects.
        await asyncio.shield(asyncio.ensure_future(self.register(name)))
        return web.Response(status=202)

    async def register(self, name):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.start_seconds)
        self.at_once -= 1
        self.servers[name] = {"ready": False, "url": f"/user/ada/{name}/"}

    async def stop(self, request):
        self.deletes += 1
        if self.busy_deletes:
            self.busy_deletes -= 1
            return web.json_response({"status": 400, "message": "pending spawn, please wait"}, status=400)
        if self.broken_deletes:
            self.broken_deletes -= 1
            if self.removed_elsewhere:
                del self.servers[request.match_info["name"]]
            raise web.HTTPInternalServerError
        if self.servers.pop(request.match_info["name"], None) is None:
            raise web.HTTPNotFound
        await asyncio.sleep(self.stop_seconds)
        return web.Response(status=202)

    async def progress(self, request):
        name = request.match_info["name"]
        if self.busy_starts:
            self.busy_starts -= 1
            return web.json_response({"status": 400, "message": f"ada:{name} is not starting..."}, status=400)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for event in self.events.get(name, [{"message": "Spawning"}, READY]):
            if event == "hang":
                await asyncio.Event().wait()
            if event == "break":
                request.transport.abort()
                return answer
            text = json.dumps(event).replace("{name}", name)
            await answer.write(f"data: {text}\n\n".encode())
        return answer


@asynccontextmanager
async def served(application):
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
def fake():
    return FakeHub()


@pytest.fixture
async def workers(fake):
    async with served(fake.application()) as url, aiohttp.ClientSession() as session:
        yield HubWorkers(HubClient(url=url, token=TOKEN, session=session, stop_seconds=1.5))


async def start(workers, names=("c-w0", "c-w1"), timeout=10.0, progress=None):
    return await workers.start(names, OPTIONS, progress or (lambda line: None), timeout)


@asynccontextmanager
async def with_tokens(fake):
    """Yield the workers of a hub that issues tokens for workers."""
    fake.tokens = {}
    async with served(fake.application()) as url, aiohttp.ClientSession() as session:
        yield HubWorkers(HubClient(url=url, token=TOKEN, session=session, stop_seconds=1.5))


async def test_a_worker_never_receives_the_drivers_own_token(fake):
    async with with_tokens(fake) as workers:
        for worker in await start(workers):
            await worker.info()
        for server in fake.servers.values():
            server["ready"] = True
        for worker in await workers.find("c"):
            await worker.info()
    assert fake.seen == ["token only for c-w0", "token only for c-w1"] * 2


async def test_the_token_for_a_worker_is_requested_once_for_each_of_its_starts(fake):
    async with with_tokens(fake) as workers:
        for started in ("1", "1", "2", "2"):
            await workers.worker("c-w0", "/user/ada/c-w0/", started=started)
    assert fake.tokens == {"c-w0": 2}


async def test_a_hub_of_an_earlier_version_has_no_tokens_for_workers(fake, workers):
    [worker] = await start(workers, ["c-w0"])
    await worker.info()
    assert fake.seen == [f"token {TOKEN}"]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_start_cancelled_before_the_hub_answers_leaves_no_server(fake, workers, times):
    fake.start_seconds = 0.3
    starting = asyncio.create_task(start(workers))
    while len(fake.asked) < 2:
        await asyncio.sleep(0.01)
    for _ in range(times):
        starting.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.sleep(fake.start_seconds)
    assert fake.servers == {}
    assert fake.deletes >= 2


async def test_started_workers_come_in_order_with_their_addresses(fake, workers):
    messages = []
    started = await start(workers, progress=messages.append)
    assert [worker.name for worker in started] == ["c-w0", "c-w1"]
    assert started[1].url.endswith("/user/ada/c-w1/")
    assert fake.asked["c-w0"] == {
        "user_options": {"role": "worker", "cluster": "c", "profile": "cpu", "ranks": 2},
        "display_name": "c-w0",
    }
    assert sorted(messages) == ["worker c-w0 is ready", "worker c-w1 is ready"]


async def test_the_cause_of_a_failed_start_is_reported_after_the_hubs_cleanup(fake, workers):
    fake.busy_starts = 2
    fake.events["c-w0"] = [{"progress": 100, "failed": True, "message": "no GPU is free"}]
    with pytest.raises(WorkerStartError, match="no GPU is free"):
        await start(workers, ["c-w0"])


async def test_a_place_in_the_queue_is_shown_and_its_time_does_not_count(fake, workers):
    fake.events["c-w0"] = [{"message": "place 1", "queue": 1}, {"message": "GPU found", "queue": 0}, READY]
    messages = []
    await start(workers, ["c-w0"], progress=messages.append)
    assert messages == ["worker c-w0: place 1", "worker c-w0: GPU found", "worker c-w0 is ready"]

    fake.events["c-w0"] = [{"message": "place 1", "queue": 1}, "hang"]
    fake.servers.clear()
    waiting = asyncio.create_task(start(workers, ["c-w0"], timeout=0.05, progress=messages.append))
    done, _ = await asyncio.wait([waiting], timeout=0.5)
    assert not done
    waiting.cancel()
    await asyncio.wait([waiting])
    assert fake.servers == {}


def test_the_options_of_a_worker_that_waits():
    options = WorkerOptions(cluster="c", workers=3, wait=True, together=2)
    assert options.user_options() == {"role": "worker", "cluster": "c", "workers": 3, "wait": True, "together": 2}


def test_the_options_of_workers_that_start_together():
    assert WorkerOptions(cluster="c", together=2).user_options()["together"] == 2
    assert "together" not in WorkerOptions(cluster="c").user_options()


async def test_gpus_are_those_of_the_hub(fake, workers):
    assert await workers.gpus() == {}
    counting = FakeHub()
    counting.gpus = {"big": {"total": 2, "free": 0, "held": {"ada": 2}, "waiting": 1}}
    async with served(counting.application()) as url, aiohttp.ClientSession() as session:
        found = await HubClient(url=url, token=TOKEN, session=session).gpus()
    assert gpu_line("big", found["big"]) == "GPUs big: 0 of 2 free, ada has 2, 1 server waiting"


async def notices_of(hub, token=TOKEN):
    """Return the notices in the answer of a hub."""
    async with served(hub.application()) as url, aiohttp.ClientSession() as session:
        return await HubClient(url=url, token=token, session=session).notices()


async def test_notices_are_those_of_the_hub(fake, workers):
    assert await workers.client.notices() == []
    fake.notices = json.dumps([NOTICE])
    assert await notices_of(fake) == [Notice(by="olga", at=1.5, text="Bye.", servers=("", "c-w0"))]
    with pytest.raises(PermissionDeniedError):
        await notices_of(fake, "another token")


@pytest.mark.parametrize("answer", ["", "[", "null", "5", '{"notices": []}', "[[]]", "[" * 100_000, b"\xff"])
async def test_a_malformed_answer_contains_no_notices(fake, answer):
    fake.notices = answer
    assert await notices_of(fake) == []


async def test_running_clusters_are_found_by_the_names_of_their_workers(fake, workers):
    ready, pending = {"ready": True, "url": "/user/ada/x/"}, {"ready": False, "url": None}
    fake.servers = {"": ready, "tools": ready, "c-w10": ready, "c-w2": ready, "my-net-w0": pending}
    assert await workers.clusters() == {"c": 2, "my-net": 1}
    assert [worker.name for worker in await workers.find("c")] == ["c-w2", "c-w10"]
    assert await workers.find("my-net") == []


async def test_a_failed_spawn_shows_the_hubs_reason_and_stops_the_others(fake, workers):
    fake.events["c-w1"] = [{"progress": 100, "failed": True, "message": "Spawn failed: no such image"}]
    fake.events["c-w0"] = ["hang"]
    with pytest.raises(WorkerStartError, match=r"^Spawn failed: no such image \(worker c-w1 did not start\)$"):
        await start(workers)
    assert fake.servers == {}


async def test_a_slow_spawn_shows_the_last_message_and_stops_all(fake, workers):
    fake.events["c-w1"] = [{"message": "Pulling image"}, "hang"]
    with pytest.raises(WorkerStartError, match=r"c-w1 did not start within 0.2 s.*last message: Pulling.*--timeout"):
        await start(workers, timeout=0.2)
    assert fake.servers == {}


async def test_a_spawn_that_is_cancelled_leaves_nothing(fake, workers):
    fake.events["c-w0"] = ["hang"]
    task = asyncio.create_task(start(workers))
    while "c-w0" not in fake.servers:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fake.servers == {}


@pytest.mark.parametrize(
    "reason",
    [
        "You have 16 workers already and this hub allows 16 for each user. Stop a cluster",
        "User ada already has the maximum of 3 named servers.  One must be deleted before a new server can be created",
    ],
)
async def test_a_reached_quota_stops_all(fake, workers, reason):
    fake.refusals["c-w1"] = (400, reason)
    with pytest.raises(QuotaError, match=reason[:40]):
        await start(workers)
    assert fake.servers == {}


async def test_a_start_is_retried_while_the_hub_is_busy(fake, workers):
    fake.throttled = 3
    assert len(await start(workers)) == 2
    assert fake.throttled == 0
    assert sorted(fake.servers) == ["c-w0", "c-w1"]


async def test_a_hub_that_stays_busy_is_an_error_and_the_other_workers_stop(fake, workers):
    fake.throttled, fake.retry_after = 1, "3600"
    with pytest.raises(HubBusyError, match=r"accepts no more .*Too many users.*concurrent_spawn_limit") as caught:
        await start(workers)
    assert (caught.value.status, caught.value.retry_seconds) == (429, 3600.0)
    assert fake.servers == {}


async def test_a_limit_of_active_servers_is_a_quota_and_not_retried(fake, workers):
    fake.refusals["c-w0"] = (429, "Active user limit exceeded. Try again in a few minutes.")
    with pytest.raises(QuotaError, match="Active user limit exceeded"):
        await start(workers)


async def test_few_start_requests_are_sent_at_a_time(fake, workers):
    fake.start_seconds = 0.02
    names = [f"c-w{index}" for index in range(20)]
    assert [worker.name for worker in await start(workers, names)] == names
    assert fake.most_at_once == REQUESTS_AT_ONCE


async def test_an_unknown_profile_is_the_hubs_error_with_its_reason(fake, workers):
    fake.refusals["c-w0"] = (400, "There is no profile 'x' here. Choose one of: cpu.")
    with pytest.raises(HubError) as caught:
        await start(workers, ["c-w0"])
    assert str(caught.value) == "There is no profile 'x' here. Choose one of: cpu."
    assert (type(caught.value), caught.value.status) == (HubError, 400)
    # The request is for administrators. Notebooks show only the message, and tracebacks and logs show the notes too.
    assert caught.value.__notes__ == [f"POST {workers.client.url}hub/api/users/ada/servers/c-w0: 400"]


@pytest.mark.parametrize(
    ("status", "answer"),
    [(404, "Not Found"), (404, None), (500, "Internal Server Error"), (500, "Failed to start your server")],
)
async def test_a_refusal_without_a_remedy_gets_one(fake, workers, status, answer):
    fake.refusals["c-w0"] = (status, answer)
    with pytest.raises(HubError) as caught:
        await start(workers, ["c-w0"])
    assert str(caught.value).startswith(f"the hub could not process a request ({status} {answer or 'Not Found'}). Try")


async def test_the_page_of_a_proxy_is_not_shown():
    async def unavailable(_request):
        return web.Response(status=503, text="<html><body>no server</body></html>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/hub/api/user", unavailable)
    async with served(application) as url, aiohttp.ClientSession() as session:
        with pytest.raises(HubError, match=r"could not process a request \(503 Service Unavailable\)"):
            await HubClient(url=url, token=TOKEN, session=session).user()


async def test_a_misspelled_cluster_is_suggested(fake, workers):
    fake.servers = {"digits-w0": {"ready": True, "url": "/user/ada/digits-w0/"}}
    assert str(await workers.no_cluster("digtis")) == (
        "no cluster 'digtis' is running. `%cluster list` shows the running clusters. Did you mean 'digits'?"
    )
    assert "Did you mean" not in str(await workers.no_cluster("digits"))


async def test_a_used_name_is_refused_and_its_owner_is_unaffected(fake, workers):
    fake.servers["c-w1"] = {"ready": True, "url": "/user/ada/c-w1/"}
    with pytest.raises(ClusterExistsError, match=r"'c' exists already \(worker c-w1\).*%cluster attach c"):
        await start(workers)
    assert list(fake.servers) == ["c-w1"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_token_names_the_remedy(fake, workers, status):
    fake.refusals["c-w0"] = (status, "requires any of [start:servers]")
    with pytest.raises(
        PermissionDeniedError, match=rf"{status} requires any of \[start:servers\].*Token page"
    ) as caught:
        await start(workers)
    assert caught.value.status == status


async def test_a_wrong_token_is_refused(fake, workers):
    workers._client.token = "wrong"
    with pytest.raises(PermissionDeniedError, match=r"403 Forbidden.*expired or lacks a scope"):
        await workers.clusters()


async def test_no_hub_at_the_address(unused_tcp_port):
    async with aiohttp.ClientSession() as session:
        client = HubClient(url=f"http://127.0.0.1:{unused_tcp_port}", token=TOKEN, session=session)
        with pytest.raises(HubUnreachableError, match=r"no hub answers at http://127.0.0.1:\d+/.*--local"):
            await client.user()


@pytest.mark.parametrize(
    ("given", "prefix", "internal"),
    [("", True, True), ("", False, False), ("same", True, True), ("other", True, False)],
    ids=["a notebook of the hub", "a laptop with the variable", "the panel, which gives the address", "another hub"],
)
async def test_only_an_address_that_the_user_knows_is_named(monkeypatch, unused_tcp_port, given, prefix, internal):
    own = f"http://127.0.0.1:{unused_tcp_port}"
    monkeypatch.setenv("FARANDOLE_HUB_URL", own)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", TOKEN)
    monkeypatch.delenv("JUPYTERHUB_SERVICE_PREFIX", raising=False)
    if prefix:
        monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    url = {"same": f"{own}/", "other": own.replace("127.0.0.1", "localhost")}.get(given)
    token = "of another hub" if given == "other" else None
    async with aiohttp.ClientSession() as session:
        workers = HubWorkers.from_environment(url, token, session)
        with pytest.raises(HubUnreachableError) as caught:
            await workers.clusters()
    if internal:
        assert str(caught.value) == "the hub does not answer; it may be restarting. Try again in a minute."
        assert caught.value.__notes__[0].startswith(f"{own}/: Cannot connect")
    else:
        assert f"no hub answers at {workers.client.url} (Cannot connect" in str(caught.value)
        assert "Check the address" in str(caught.value)


async def test_the_token_of_this_hub_is_not_sent_to_another_one(monkeypatch):
    monkeypatch.setenv("FARANDOLE_HUB_URL", "http://hub.example.org:8000")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", TOKEN)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(NoClusterError, match=r"no token for the hub https://other\.example\.org; run"):
            HubWorkers.from_environment("https://other.example.org", None, session)


@pytest.mark.parametrize(
    "given", [None, "http://proxy:8000/", "https://hub.example.org", "https://hub.example.org/hub/home"]
)
@pytest.mark.parametrize(("variable", "public"), [("JUPYTERHUB_HOST", ""), ("JUPYTERHUB_PUBLIC_HUB_URL", "/hub/")])
async def test_a_notebook_of_the_hub_may_name_the_hubs_address_for_browsers(monkeypatch, given, variable, public):
    monkeypatch.setenv("FARANDOLE_HUB_URL", "http://proxy:8000")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", TOKEN)
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    monkeypatch.setenv(variable, f"https://hub.example.org{public}")
    async with aiohttp.ClientSession() as session:
        workers = HubWorkers.from_environment(given, None, session)
    assert (workers.client.url, workers.client.token, workers.outside) == ("http://proxy:8000/", TOKEN, False)


async def test_a_login_gives_the_token_for_the_given_hub_the_variable_or_the_only_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    monkeypatch.delenv("FARANDOLE_HUB_URL", raising=False)
    first, second = "https://hub.example.org", "https://other.example.org"
    async with aiohttp.ClientSession() as session:

        def used(url=None, token=None):
            client = HubWorkers.from_environment(url, token, session).client
            return client.url, client.token

        with pytest.raises(NoClusterError, match="no JupyterHub here"):
            used(token="given")
        credentials.keep(Login(url=first, user="ada", token="one"))
        assert used() == used(f"{first}/hub/home") == (f"{first}/", "one")
        assert used(token="given") == (f"{first}/", "given")
        assert HubWorkers.from_environment(None, None, session).outside
        credentials.keep(Login(url=second, user="ada", token="two"))
        with pytest.raises(NoClusterError, match="logins for several hubs"):
            used()
        monkeypatch.setenv("FARANDOLE_HUB_URL", second)
        assert used() == (f"{second}/", "two")
        assert used(first) == (f"{first}/", "one")


async def broken(request):
    """Break the connection in the middle of an answer."""
    answer = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
    await answer.prepare(request)
    await answer.write(b'{"name": "ada", ')
    request.transport.close()
    return answer


async def page(_request):
    return web.Response(text="<p>Log in to this hotel's network", content_type="text/html")


async def garbage(_request):
    return web.Response(text="{", content_type="application/json")


async def forbidden_page(_request):
    return web.Response(status=403, text="<p>Log in to this hotel's network", content_type="text/html")


@pytest.mark.parametrize("answer", [broken, page, garbage])
async def test_a_worker_is_not_lost_if_something_else_answers_for_the_hub(answer):
    # A laptop that changes its network sees all of these.
    application = web.Application()
    application.router.add_get("/hub/api/user", answer)
    async with served(application) as url, aiohttp.ClientSession() as session:
        client = HubClient(url=url, token=TOKEN, session=session)
        with pytest.raises(HubUnreachableError, match=r"no hub answers at http://127.*Check the address"):
            await client.servers()
        assert await HubWorkers(client)._presence("c-w0") is None


async def test_a_token_that_the_hub_refuses_is_an_answer_and_a_page_of_another_server_is_none(fake, workers):
    fake.servers = {"c-w0": {}}
    assert await workers._presence("c-w0")
    workers._client.token = "revoked"
    with pytest.raises(PermissionDeniedError, match="farandole login"):
        await workers._presence("c-w0")
    application = web.Application()
    application.router.add_get("/hub/api/user", forbidden_page)
    async with served(application) as url, aiohttp.ClientSession() as session:
        other = HubWorkers(HubClient(url=url, token=TOKEN, session=session))
        assert await other._presence("c-w0") is None


async def test_a_hub_that_ends_during_a_start_is_unreachable(fake, workers):
    fake.events["c-w0"] = ["break"]
    with pytest.raises((HubUnreachableError, WorkerStartError)):
        await start(workers, ["c-w0"])
    assert fake.servers == {}


async def test_stopping_waits_until_the_hub_has_forgotten_the_name(fake, workers):
    await start(workers, ["c-w0"])
    fake.busy_deletes = 2
    await workers.stop(["c-w0"])
    assert fake.servers == {}
    assert fake.deletes == 4


async def test_workers_that_wait_for_a_stop_request_do_not_time_out(fake, workers):
    names = [f"c-w{number}" for number in range(5 * STOPS_AT_ONCE)]
    fake.servers = {name: {} for name in names}
    # Together, the requests take longer than the timeout of a single request.
    fake.stop_seconds = 0.4
    await workers.stop(names)
    assert fake.servers == {}


async def test_a_worker_that_does_not_stop_is_named(fake, workers):
    await start(workers, ["c-w0"])
    fake.busy_deletes = 1000
    with pytest.raises(DeadlineError, match=r"did not stop server c-w0 within 1.5 s; stop it on the hub's home page"):
        await workers.stop(["c-w0"])


async def test_a_worker_that_another_client_removes_meanwhile_is_stopped(fake, workers):
    await start(workers, ["c-w0"])
    fake.broken_deletes, fake.removed_elsewhere = 1, True
    await workers.stop(["c-w0"])
    assert fake.servers == {}


async def test_a_server_error_of_the_hub_is_raised_while_the_worker_exists(fake, workers):
    await start(workers, ["c-w0"])
    fake.broken_deletes = 1
    with pytest.raises(HubError):
        await workers.stop(["c-w0"])


async def test_an_error_of_the_cleanup_does_not_hide_the_cause_of_a_failed_start(fake, workers):
    fake.events["c-w0"] = [{"failed": True, "message": "no room"}]
    fake.busy_deletes = 1000
    messages = []
    with pytest.raises(WorkerStartError, match="no room"):
        await start(workers, ["c-w0"], progress=messages.append)
    assert "workers c-w0 may still exist" in messages[-1]


async def test_without_a_hub_the_remedy_is_local(monkeypatch):
    for variable in ("FARANDOLE_HUB_URL", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(NoClusterError, match=r"no JupyterHub here.*--local"):
            HubWorkers.from_environment(None, None, session)
