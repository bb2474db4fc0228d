"""Tests for the panel's routes on a real notebook server: access control, refused requests and actions on clusters."""

import asyncio
import json
import os

import aiohttp
import pytest
from farandole.driver.control import mailbox
from farandole.driver.control.mailbox import MAILBOXES
from farandole.quotas.home import LIMIT
from farandole.quotas.measure import measure
from farandole.runs.folder import this_process
from farandole.server.panel import wire, wire_routes
from farandole.server.panel.cluster_monitor import ClusterMonitor
from tornado.routing import Matcher

from tests.panel import DEADLINE, PAGE_TOKEN, PanelHub, panel_server
from tests.unit.driver.workers.test_source import TOKEN
from tests.unit.server.panel.test_wire import misfit

START = {"name": "main", "workers": 2, "profile": "cpu", "ranks": None, "backend": None, "wait": False}


@pytest.fixture
def hub():
    return PanelHub()


@pytest.fixture
async def server(tmp_path, monkeypatch, hub):
    async with panel_server(tmp_path, monkeypatch, hub) as server:
        yield server


@pytest.fixture
async def alone(tmp_path, monkeypatch):
    async with panel_server(tmp_path, monkeypatch) as server:
        yield server


async def until_there(server, wanted, name="main"):
    """Wait until the state of a cluster meets a condition, and return this state."""
    async with asyncio.timeout(DEADLINE):
        while True:
            state = await server.ask("GET", "state")
            found = next((one for one in state["clusters"] if one["name"] == name), None)
            if wanted(found):
                return found
            await asyncio.sleep(0.05)


def routes(server):
    """Return a dict from the path of each of the panel's routes to its handler."""
    rules = [*server.app.web_app.wildcard_router.rules, *server.app.web_app.default_router.rules]
    nested = [inner for rule in rules for inner in _inner(rule)]
    found = {}
    for rule in nested:
        pattern = getattr(rule.matcher, "regex", None)
        if isinstance(rule.matcher, Matcher) and pattern is not None and "/farandole/" in pattern.pattern:
            found[pattern.pattern.rstrip("$").replace("([^/]+)", "x").replace("([0-9]+)", "0")] = rule.target
    return found


def _inner(rule):
    return getattr(rule.target, "rules", [rule])


async def test_every_route_answers_403_without_a_login(server):
    found = routes(server)
    assert len(found) == 27
    base = server.url.removesuffix("/farandole/panel/")
    # The requests contain the XSRF token of the login page, so that they fail only because of the missing login.
    async with server.session.get(f"{base}/login") as answer:
        await answer.read()
    [xsrf] = [cookie.value for cookie in server.session.cookie_jar if cookie.key == "_xsrf"]
    asked = 0
    for path, handler in found.items():
        for verb in ("get", "post", "put", "patch", "delete"):
            if getattr(handler, verb).__module__.startswith("farandole"):
                asked += 1
                async with server.session.request(verb, base + path, headers={"X-XSRFToken": xsrf}) as answer:
                    assert answer.status == 403, f"{verb} {path}: {answer.status}"
                    assert "XSRF" not in await answer.text()
    # Each of the 27 paths has one method, except for those of a cluster and of snapshots with two, and that of a run
    # with three.
    assert asked == 31


async def test_the_stream_needs_a_login_and_a_page_of_this_server(server):
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await server.session.ws_connect(server.url + "events")
    await logged_in(server)
    own = server.url.split("/farandole")[0]
    async with server.session.ws_connect(server.url + "events", headers={"Origin": own}) as socket:
        assert not socket.closed
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await server.session.ws_connect(server.url + "events", headers={"Origin": "http://evil.example"})


async def logged_in(server):
    """Log in as a browser would, and return the XSRF token."""
    base = server.url.removesuffix("farandole/panel/")
    for path in (f"?token={PAGE_TOKEN}", "login"):
        async with server.session.get(base + path) as answer:
            await answer.read()
    return next(cookie.value for cookie in server.session.cookie_jar if cookie.key == "_xsrf")


async def test_a_login_by_cookie_needs_the_xsrf_token_too(server, hub):
    xsrf = await logged_in(server)
    async with server.session.get(server.url + "state") as answer:
        assert answer.status == 200
    for headers, status in (({}, 403), ({"X-XSRFToken": xsrf}, 202)):
        async with server.session.post(server.url + "clusters", json=START, headers=headers) as answer:
            assert answer.status == status, await answer.text()
    assert sorted(hub.asked) == ["main-w0", "main-w1"]


async def test_the_state_of_a_hub_without_clusters(server):
    state = await server.ask("GET", "state")
    assert misfit(state, wire_routes.State) is None
    notice = {"by": "olga", "time": 1.5, "text": "Bye.", "servers": ["", "c-w0"]}
    assert state["hub"] == {"user": "ada", "error": None, "notices": [notice]}
    assert (state["clusters"], state["runs"]) == ([], {"runs": [], "offset": 0, "total": 0})
    resources = state["resources"]
    assert [(one["gpus_free"], one["gpus_total"]) for one in resources["profiles"]] == [(None, None), (1, 3)]
    assert resources["gpus"][0]["held"] == [{"user": "ada", "count": 1}, {"user": "grace", "count": 1}]
    assert resources["quota"] == {"workers": 0, "workers_max": 4, "ranks_per_worker_max": 2}
    assert resources["home"] is None


async def test_the_use_of_the_home_reaches_open_pages(tmp_path, monkeypatch, hub):
    home = tmp_path / "home-of-the-user"
    home.mkdir()
    (home / "data").write_bytes(bytes(2**20))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(LIMIT, str(16 * 2**20))
    async with panel_server(tmp_path, monkeypatch, hub) as server, server.stream() as stream:
        measured = await stream.until("resources", lambda message: message["resources"]["home"]["used"])
        found = measured["resources"]["home"]
        assert (found["limit"], found["warning"]) == (16 * 2**20, None)
        assert found["used"] + found["free"] == 16 * 2**20
        (home / "data").write_bytes(os.urandom(15 * 2**20))
        await asyncio.to_thread(measure, home)
        full = await stream.until("resources", lambda message: message["resources"]["home"]["warning"])
        assert full["resources"]["home"]["warning"].startswith("Your home is nearly full (15 MiB of 16 MiB used, ")
        assert misfit((await server.ask("GET", "state")), wire_routes.State) is None


async def test_a_cluster_is_started_shown_and_stopped(server, hub):
    there = await server.ask("POST", "clusters", 202, json={**START, "backend": "torch"})
    assert misfit(there, wire.Cluster) is None
    assert hub.asked["main-w1"]["user_options"] == {
        "role": "worker",
        "cluster": "main",
        "profile": "cpu",
        "workers": 2,
        "together": 2,
        "backend": "torch",
    }
    main = await until_there(server, lambda found: found and found["state"] == "ready")
    assert misfit(main, wire.Cluster) is None
    assert (main["backend"], main["profile"], main["size"], main["wanted"], main["lead"]) == (
        "torch", "cpu", 4, None, None,
    )  # fmt: skip
    worker = main["workers"][0]
    assert (worker["name"], worker["host"], worker["slots"], worker["busy"]) == ("main-w0", "host-main-w0", 2, False)
    assert (worker["url"], worker["usage"]["gpus"][0]["percent"]) == ("/user/ada/main-w0/", 80.0)
    assert 1700 <= worker["idle_until"] - worker["usage"]["time"] <= 1760
    again = await server.ask("POST", "clusters", 409, json=START)
    assert (again["code"], misfit(again, wire.Problem)) == ("exists", None)
    await server.ask("DELETE", "clusters/main", 202)
    await until_there(server, lambda found: found is None)
    assert hub.servers == {}


def both_report(said):
    return [bool(worker["message"]) for one in said["clusters"] for worker in one["workers"]] == [True, True]


async def test_the_progress_of_a_start_comes_from_the_hub_and_a_start_can_be_cancelled(server, hub):
    wait = {"progress": 10, "message": "Waiting for 1 GPU of class rtx, place 2 of 2 in the queue.", "queue": 2}
    hub.events = {"main-w0": [{"progress": 50, "message": "Starting"}, "hold"], "main-w1": [wait, "hold"]}
    async with server.stream() as stream:
        main = await server.ask("POST", "clusters", 202, json={**START, "profile": "big", "wait": True})
        assert [one["state"] for one in main["workers"]] == ["starting", "starting"]
        message = await stream.until("clusters", both_report)
        assert misfit(message, wire.ClustersMessage) is None
        [main] = message["clusters"]
        assert (main["state"], main["wanted"], main["size"]) == ("starting", 2, None)
        first, second = main["workers"]
        assert (first["state"], first["percent"], first["message"], first["queue"]) == (
            "starting", 50, "Starting", None,
        )  # fmt: skip
        assert (second["message"], second["queue"]) == (wait["message"], 2)
        assert hub.asked["main-w0"]["user_options"]["together"] == 2
        stopping = await server.ask("DELETE", "clusters/main", 202)
        assert stopping["state"] == "stopping"
        await stream.until("clusters", lambda said: said["clusters"] == [])
    assert hub.servers == {}


async def test_an_early_refusal_is_returned_and_its_request_is_in_the_log(server, hub, caplog):
    caplog.set_level("INFO")
    hub.refusals["main-w0"] = (400, "That makes 5 workers and this hub allows 4 for each user.")
    problem = await server.ask("POST", "clusters", 429, json=START)
    assert (problem["code"], misfit(problem, wire.Problem)) == ("quota", None)
    assert problem["message"] == "That makes 5 workers and this hub allows 4 for each user."
    assert "servers/main-w0: 400" in caplog.text
    assert (await server.ask("GET", "state"))["clusters"] == []


async def test_a_late_failure_stays_with_the_hubs_reason_until_it_is_dismissed(server, hub, monkeypatch):
    monkeypatch.setattr("farandole.server.panel.actions.SOON_SECONDS", 0.01)
    failed = {"progress": 100, "failed": True, "message": "Spawn failed: no GPU is free"}
    hub.events = {"main-w1": [{"progress": 10, "message": "Starting"}, "hold", failed]}
    async with server.stream() as stream:
        await server.ask("POST", "clusters", 202, json=START)
        hub.go.set()
        message = await stream.until(
            "clusters", lambda said: said["clusters"] and said["clusters"][0]["state"] == "failed"
        )
        [main] = message["clusters"]
        assert misfit(main, wire.Cluster) is None
        assert main["error"] == "Spawn failed: no GPU is free (worker main-w1 did not start)"
        await server.ask("DELETE", "clusters/main", 204)
        await stream.until("clusters", lambda said: said["clusters"] == [])
    assert hub.servers == {}


async def test_a_start_from_a_notebook_is_shown_too(server, hub):
    failed = {"progress": 100, "failed": True, "message": "Spawn failed: no image"}
    hub.events = {"mine-w0": [{"progress": 10, "message": "Pulling"}, "hold", failed]}
    hub.asked["mine-w0"] = {"user_options": {"profile": "big"}}
    await hub.register("mine-w0")
    async with server.stream() as stream:
        message = await stream.until(
            "clusters", lambda said: said["clusters"] and said["clusters"][0]["workers"][0]["message"]
        )
        assert message["clusters"][0]["workers"][0]["message"] == "Pulling"
        hub.go.set()
        message = await stream.until("clusters", lambda said: said["clusters"][0]["error"])
        assert message["clusters"][0]["error"] == "Spawn failed: no image (worker mine-w0 did not start)"


async def test_a_cluster_without_a_driver_is_scaled_here(server, hub):
    for name in ("main-w0", "main-w2"):
        hub.has(name, profile="big", ranks=2, backend="torch")
    await server.ask("PATCH", "clusters/main", 202, json={"workers": 4})
    await until_there(server, lambda found: len(found["workers"]) == 4 and found["state"] == "ready")
    assert sorted(hub.asked) == ["main-w1", "main-w3"]
    assert hub.asked["main-w3"]["user_options"] == {
        "role": "worker",
        "cluster": "main",
        "profile": "big",
        "ranks": 2,
        "workers": 4,
        "together": 2,
        "backend": "torch",
    }
    await server.ask("PATCH", "clusters/main", 202, json={"workers": 1})
    await until_there(server, lambda found: [one["name"] for one in found["workers"]] == ["main-w0"])


async def test_an_active_run_keeps_its_cluster_unless_it_may_be_stopped(server, hub):
    hub.has("main-w0")
    hub.runs["20260101-000000-abcd"] = "main-w0"
    problem = await server.ask("DELETE", "clusters/main", 409)
    assert misfit(problem, wire.Problem) is None
    assert (problem["code"], problem["runs"]) == ("runs_go_on", ["20260101-000000-abcd"])
    assert hub.servers
    await server.ask("DELETE", "clusters/main?stop_runs=1", 202)
    await until_there(server, lambda found: found is None)


class Driver:
    """A fake driver with a real mailbox. It records the requests that it receives."""

    def __init__(self, store, **said):
        self.asked, self.error = [], None
        self.sign = {
            "cluster": "main", "local": False, "backend": "torch", "notebook": "", "kernel": "k", "busy": False,
            "driver": this_process(), "since": 1.0, "workers": ["main-w0"], "ranks": [("main-w0", 0, True)],
            "runs": [], "wanted": None, "error": None, **said,
        }  # fmt: skip
        self._mailbox = mailbox.Mailbox(
            store, lambda: self.sign, dict.fromkeys(("scale", "stop", "stop_run"), self.act)
        )

    async def act(self, request):
        self.asked.append(request)
        if self.error:
            raise self.error

    async def __aenter__(self):
        self._serving = asyncio.create_task(self._mailbox.serve())
        async with asyncio.timeout(DEADLINE):
            while not (self._mailbox.folder / "desk.json").exists():
                await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_):
        self._serving.cancel()
        await asyncio.wait([self._serving])


async def test_a_cluster_with_a_driver_is_changed_only_by_it(server, hub, tmp_path):
    hub.has("main-w0")
    notebook = str(tmp_path / "home" / "work" / "n.ipynb")
    async with Driver(tmp_path / "runs", notebook=notebook, runs=["r"], busy=True, wanted=3) as driver:
        main = await until_there(server, lambda found: found)
        assert misfit(main, wire.Cluster) is None
        assert main["lead"] == {"notebook": "work/n.ipynb", "kernel": "k", "host": this_process()["host"], "busy": True}
        assert (main["backend"], main["size"], main["wanted"], main["runs"]) == ("torch", 1, 3, ["r"])
        assert main["workers"][0]["ranks"] == [{"rank": 0, "alive": True}]
        assert "when its cell has ended" in main["notice"]
        await server.ask("PATCH", "clusters/main", 202, json={"workers": 2})
        await server.ask("DELETE", "clusters/main?stop_runs=1", 202)
        assert driver.asked == [{"do": "scale", "workers": 2}, {"do": "stop"}]
        assert list(hub.servers) == ["main-w0"]
        assert not hub.asked


async def test_a_starting_cluster_is_not_ready_with_its_first_worker(server, hub, tmp_path):
    hub.has("main-w0")
    hub.asked["main-w1"] = {"user_options": {"profile": "cpu"}}
    await hub.register("main-w1")
    hub.events = {"main-w1": ["hold"]}
    async with Driver(tmp_path / "runs", workers=["main-w0", "main-w1"], ranks=[], busy=True):
        main = await until_there(server, lambda found: found and found["lead"])
        assert (main["state"], main["size"]) == ("starting", None)


async def test_a_dead_rank_is_marked(server, hub, tmp_path):
    hub.has("main-w0")
    async with Driver(tmp_path / "runs", ranks=[("main-w0", 0, True), ("main-w0", 1, False)]):
        main = await until_there(server, lambda found: found)
        assert main["workers"][0]["ranks"] == [{"rank": 0, "alive": True}, {"rank": 1, "alive": False}]
        assert main["notice"] == "rank 1 is dead; the next cell starts it again"


async def test_the_tasks_and_the_memory_of_dask_are_known_by_worker(server, hub, tmp_path):
    hub.has("main-w0")
    hub.has("main-w1")
    worker = {"running": 1, "waiting": 2, "done": 3, "memory": 4, "memory_limit": 5, "spilled": 6, "paused": "training"}
    progress = {"tasks": 7, "done": 3, "failed": 1}
    async with Driver(tmp_path / "runs", dask={**progress, "workers": {"main-w0": worker, "gone": worker}}):
        main = await until_there(server, lambda found: found)
        assert misfit(main, wire.Cluster) is None
        assert main["dask"] == progress
        assert [one["dask"] for one in main["workers"]] == [worker, None]
    main = await until_there(server, lambda found: found["lead"] is None)
    assert (main["dask"], main["workers"][0]["dask"]) == (None, None)


async def test_several_dead_ranks_are_in_the_plural(server, hub, tmp_path):
    hub.has("main-w0")
    async with Driver(tmp_path / "runs", ranks=[("main-w0", 0, False), ("main-w0", 1, False)]):
        main = await until_there(server, lambda found: found)
        assert main["notice"] == "ranks 0, 1 are dead; the next cell starts them again"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "Big One"}, "cannot be a cluster's name"),
        ({"workers": 0}, "number of workers must be at least 1, not 0"),
        ({"workers": 10**9}, "at most 1,024 workers, not 1,000,000,000"),
        ({"workers": True}, "workers must be of type int"),
        ({"ranks": 0}, "number of ranks must be at least 1, not 0"),
        ({"backend": "mpi"}, "no backend 'mpi'"),
        ({"wait": "yes"}, "wait must be of type bool"),
        (None, "the body is not valid JSON"),
    ],
)
async def test_an_invalid_start_is_refused(server, hub, body, message):
    answer = await server.ask("POST", "clusters", 400, json=None if body is None else {**START, **body})
    assert misfit(answer, wire.Problem) is None
    assert message in answer["message"]
    assert not hub.asked


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "clusters/none", {"workers": 2}),
        ("DELETE", "clusters/none", None),
        ("GET", "clusters/main/workers/other/log", None),
        ("GET", "runs/none", None),
        ("GET", "runs/none/logs/0", None),
        ("GET", "runs/none/csv", None),
        ("GET", "runs/..%2F..%2Fetc/csv", None),
        ("POST", "runs/none/stop", None),
        ("PATCH", "runs/none", {"name": "new"}),
        ("DELETE", "runs/none", None),
    ],
)
async def test_missing_objects_are_not_found(server, method, path, body):
    answer = await server.ask(method, path, 404, json=body)
    assert (answer["code"], misfit(answer, wire.Problem)) == ("unknown", None)


async def test_the_log_of_a_worker(server, hub):
    hub.has("main-w0")
    part = await server.ask("GET", "clusters/main/workers/main-w0/log?offset=4")
    assert misfit(part, wire.LogPart) is None
    assert (part["worker"], part["text"]) == ("main-w0", "the server says hello\n")


async def test_an_unreachable_hub_is_reported_and_known_clusters_stay(server, hub):
    hub.has("main-w0")
    async with server.stream() as stream:
        await stream.until("clusters", lambda said: said["clusters"])
        hub.away = True
        message = await stream.until("clusters", lambda said: said["hub"]["error"])
        assert "503" in message["hub"]["error"]
        assert [one["name"] for one in message["clusters"]] == ["main"]
        refused = await server.ask("DELETE", "clusters/main", 409)
        assert "503" in refused["message"]
        hub.away = False
        await stream.until("clusters", lambda said: said["hub"]["error"] is None)


async def test_a_hung_worker_delays_nothing(server, hub, monkeypatch):
    monkeypatch.setattr("farandole.server.panel.panel.FIRST_SECONDS", 0.9)
    for name in ("main-w0", "main-w1"):
        hub.has(name)
    hub.hung.add("main-w0")
    main = await until_there(server, lambda found: found)
    assert [one["usage"] is None for one in main["workers"]] == [True, False]
    hub.hung.clear()
    await until_there(server, lambda found: all(one["usage"] for one in found["workers"]))


def log_of(worker):
    return {"run": None, "rank": None, "worker": worker, "offset": 0}


async def test_a_log_that_a_worker_does_not_send_delays_nothing(server, hub):
    for name in ("main-w0", "main-w1"):
        hub.has(name)
    async with server.stream() as stream:
        await stream.until("clusters", lambda said: len(said["clusters"][0]["workers"]) == 2)
        hub.hung.add("main-w0")
        await stream.watch(logs=[log_of("main-w0"), log_of("main-w1")])
        await stream.until("log")
        hub.has("main-w2")
        await stream.until("clusters", lambda said: len(said["clusters"][0]["workers"]) == 3, seconds=15)
    assert stream.log() == hub.logged


async def test_the_log_of_a_restarted_worker_is_followed_from_its_beginning(server, hub):
    hub.has("main-w0")
    async with server.stream() as stream:
        await stream.until("clusters", lambda said: said["clusters"])
        await stream.watch(logs=[log_of("main-w0")])
        await stream.until("log")
        hub.logged = "restarted\n"
        message = await stream.until("log")
        assert (message["part"]["offset"], message["part"]["text"]) == (0, "restarted\n")


async def test_a_page_that_closes_before_all_answers_breaks_nothing(server, hub, monkeypatch):
    monkeypatch.setattr("farandole.server.panel.panel.FIRST_SECONDS", 90.0)
    hub.has("main-w0")
    hub.hung.add("main-w0")
    async with server.stream():
        async with asyncio.timeout(DEADLINE):
            while not [path for _, path in hub.requests if path.endswith("/farandole/look")]:
                await asyncio.sleep(0.01)
    await until_nobody_is_asked()
    hub.hung.clear()
    async with server.stream() as stream:
        await stream.until("clusters", lambda said: said["clusters"])
        hub.has("other-w0")
        await stream.until("clusters", lambda said: len(said["clusters"]) == 2)


async def test_an_unexpected_answer_does_not_end_the_refreshes(server, hub, caplog):
    hub.has("main-w0")
    async with server.stream() as stream:
        await stream.until("clusters", lambda said: said["clusters"])
        hub.odd = True
        async with asyncio.timeout(DEADLINE):
            while "it will try again" not in caplog.text:
                await asyncio.sleep(0.01)
        hub.odd = False
        hub.has("main-w1")
        await stream.until("clusters", lambda said: len(said["clusters"][0]["workers"]) == 2)


async def test_a_cluster_can_be_stopped_right_after_its_start(server, hub, monkeypatch):
    monkeypatch.setattr("farandole.server.panel.actions.SOON_SECONDS", 0.01)
    hub.hung.add("main-w0")
    await server.ask("POST", "clusters", 202, json=START)
    async with asyncio.timeout(DEADLINE):
        while len([name for name, model in hub.servers.items() if model["ready"]]) < 2:
            await asyncio.sleep(0.01)
    await server.ask("DELETE", "clusters/main", 202)
    async with asyncio.timeout(DEADLINE):
        while hub.servers:
            await asyncio.sleep(0.01)


async def test_a_stop_right_after_a_start_stops_workers_that_the_snapshot_lacks(server, hub, monkeypatch):
    monkeypatch.setattr("farandole.server.panel.actions.SOON_SECONDS", 0.4)
    register, ask_hub, answered, refreshed = hub.register, ClusterMonitor._ask_hub, asyncio.Event(), asyncio.Event()
    refreshed.set()

    async def register_late(name):
        if name == "main-w1":
            await answered.wait()
        await register(name)

    async def ask_late(monitor, workers):
        await refreshed.wait()
        await ask_hub(monitor, workers)

    monkeypatch.setattr(hub, "register", register_late)
    monkeypatch.setattr(ClusterMonitor, "_ask_hub", ask_late)
    await server.ask("POST", "clusters", 202, json=START)
    # Delay the refresh after the start, so that the snapshot is outdated when the start is complete.
    refreshed.clear()
    answered.set()
    async with asyncio.timeout(DEADLINE):
        while len([name for name, model in hub.servers.items() if model["ready"]]) < 2:
            await asyncio.sleep(0.01)
    asyncio.get_running_loop().call_later(0.5, refreshed.set)
    await server.ask("DELETE", "clusters/main", 202)
    async with asyncio.timeout(DEADLINE):
        while hub.servers:
            await asyncio.sleep(0.01)


async def test_the_reason_of_a_failed_start_is_sent_to_the_next_page_too(server, hub, monkeypatch):
    monkeypatch.setattr("farandole.server.panel.actions.SOON_SECONDS", 0.01)
    failed = {"progress": 100, "failed": True, "message": "Spawn failed: no GPU is free"}
    hub.events = {name: ["hold", failed] for name in ("main-w0", "main-w1")}
    await server.ask("POST", "clusters", 202, json=START)
    hub.go.set()
    await until_nobody_is_asked()
    [main] = (await server.ask("GET", "state"))["clusters"]
    assert (main["state"], "no GPU is free" in main["error"]) == ("failed", True)
    await until_nobody_is_asked()
    # The worker has since been started from elsewhere.
    hub.has("main-w0")
    [main] = (await server.ask("GET", "state"))["clusters"]
    assert (main["state"], main["error"]) == ("ready", None)


async def test_all_drivers_of_a_cluster_are_asked_to_stop_it(server, hub, tmp_path):
    hub.has("main-w0")
    async with Driver(tmp_path / "runs") as first, Driver(tmp_path / "runs", since=2.0) as second:
        await until_there(server, lambda found: found)
        await server.ask("DELETE", "clusters/main", 202)
        assert (first.asked, second.asked) == ([{"do": "stop"}], [{"do": "stop"}])


async def until_nobody_is_asked():
    async with asyncio.timeout(DEADLINE):
        while [task for task in asyncio.all_tasks() if task.get_name().startswith(("panel", "start", "progress"))]:
            await asyncio.sleep(0.01)


async def test_an_action_is_completed_after_the_page_has_closed(server, hub, monkeypatch, caplog):
    monkeypatch.setattr("farandole.server.panel.actions.SOON_SECONDS", 0.01)
    monkeypatch.setattr("farandole.server.panel.panel.REFRESH_SECONDS", 0.05)
    hub.events = {"main-w0": ["hold", {"progress": 100, "ready": True, "message": "Ready"}]}
    await server.ask("POST", "clusters", 202, json=START)
    assert not hub.servers["main-w0"]["ready"]
    hub.go.set()
    await until_nobody_is_asked()
    assert [server["ready"] for server in hub.servers.values()] == [True, True]
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_with_a_hidden_panel_the_hub_is_rarely_asked_but_starts_from_a_notebook_are_noticed(
    server, hub, tmp_path
):
    async with server.stream(seen=False) as stream:
        await stream.until("clusters")
        asked = len(hub.requests)
        await asyncio.sleep(3.5)
        assert len(hub.requests) == asked
        hub.has("main-w0")
        async with Driver(tmp_path / "runs"):
            await stream.until("clusters", lambda said: said["clusters"] and said["clusters"][0]["lead"], seconds=15)
        hub.has("other-w0")
        await stream.watch()
        await stream.until("clusters", lambda said: len(said["clusters"]) == 2, seconds=15)


async def test_without_pages_nothing_is_requested(server, hub):
    hub.has("main-w0")
    async with server.stream() as stream:
        await stream.until("clusters")
    await until_nobody_is_asked()
    asked = len(hub.requests)
    await asyncio.sleep(3.5)
    assert len(hub.requests) == asked


async def test_without_a_hub_the_clusters_of_this_machine_are_shown(alone, tmp_path):
    state = await alone.ask("GET", "state")
    assert misfit(state, wire_routes.State) is None
    assert (state["hub"], state["clusters"], state["resources"]["profiles"]) == (None, [], [])
    refused = await alone.ask("POST", "clusters", 409, json=START)
    assert (refused["code"], "%cluster start --local" in refused["message"]) == ("no_hub", True)
    async with Driver(tmp_path / "runs", local=True, workers=["main-w0"]) as driver:
        main = await until_there(alone, lambda found: found)
        assert misfit(main, wire.Cluster) is None
        assert (main["local"], main["state"], main["workers"][0]["state"]) == (True, "ready", "ready")
        main = await until_there(alone, lambda found: found["workers"][0]["usage"])
        assert main["workers"][0]["usage"]["memory"] > 10_000_000
        await alone.ask("DELETE", "clusters/main", 202)
        assert driver.asked == [{"do": "stop"}]


async def test_a_run_is_stopped_by_its_driver(alone, tmp_path):
    folder = tmp_path / "runs" / "20260101-000000-abcd"
    folder.mkdir(parents=True)
    known = {"id": folder.name, "status": "running", "started": 1.0, "driver": this_process(), "size": 1}
    (folder / "run.json").write_text(json.dumps(known))
    async with Driver(tmp_path / "runs", local=True, runs=[folder.name]) as driver:
        summary = await alone.ask("POST", f"runs/{folder.name}/stop", 202)
        assert misfit(summary, wire.RunSummary) is None
        assert driver.asked == [{"do": "stop_run", "run": folder.name}]
    refused = await alone.ask("POST", f"runs/{folder.name}/stop", 409)
    assert "there is nothing to stop; the run counts as lost 5 minutes after" in refused["message"]
    (folder / "run.json").write_text(json.dumps({**known, "status": "finished"}))
    refused = await alone.ask("POST", f"runs/{folder.name}/stop", 409)
    assert refused["message"] == f"run {folder.name} is not active: it is finished"
    assert not (tmp_path / "runs" / MAILBOXES).exists()


def test_the_token_is_that_of_the_hub():
    assert TOKEN
    assert TOKEN != PAGE_TOKEN
