"""A notebook server with the panel's routes, and a fake of the hub's REST API and of its workers' API."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from jupyter_server.serverapp import ServerApp
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from tests.unit.driver.workers.test_source import NOTICE, TOKEN, FakeHub, served

PAGE_TOKEN = "the-token-of-the-page"
DEADLINE = 60
START_DEADLINE = 150
PROFILES = [
    {"name": "cpu", "description": "", "ranks": 1, "cpus": None, "memory": None, "gpus": 0, "gpu_class": None},
    {"name": "big", "description": "", "ranks": 1, "cpus": 2.0, "memory": "4G", "gpus": 1, "gpu_class": "rtx"},
]
USAGE = {
    "time": 1.0,
    "cpu": 50.0,
    "cpus": 4.0,
    "memory": 10**9,
    "memory_limit": None,
    "gpus": [{"index": 0, "percent": 80.0, "memory": 1, "memory_total": 2}],
    "received": 1.0,
    "sent": 2.0,
}


class PanelHub(FakeHub):
    """A fake hub with workers. The event "hold" delays the remaining events of a start until `go` is set."""

    def __init__(self):
        super().__init__()
        self.gpus = {"rtx": {"total": 3, "free": 1, "held": {"ada": 1, "grace": 1}, "waiting": 0}}
        self.notices = json.dumps([NOTICE])
        self.go = asyncio.Event()
        self.runs = {}
        self.away = False
        self.hung = set()
        self.odd = False
        self.logged = "[I] the server says hello\n"
        self.requests = []

    def application(self):
        app = super().application()
        app.middlewares.append(self.note)
        app.router.add_get("/user/ada/{name}/farandole/look", self.look)
        app.router.add_get("/user/ada/{name}/farandole/log", self.log)
        return app

    @web.middleware
    async def note(self, request, handler):
        self.requests.append((request.method, request.path))
        if self.odd and "/hub/api/" in request.path:
            return web.json_response(["this is no hub"])
        return web.Response(status=503) if self.away else await handler(request)

    def has(self, name, **options):
        """Add a running worker."""
        model = {"ready": True, "pending": None, "url": f"/user/ada/{name}/", "user_options": options}
        self.servers[name] = {"name": name, "stopped": False, **model}

    async def register(self, name):
        await super().register(name)
        self.servers[name] |= {"pending": "spawn", "stopped": False, "user_options": self.asked[name]["user_options"]}

    async def progress(self, request):
        name = request.match_info["name"]
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        events = [{"progress": 10, "message": "Spawning"}, {"progress": 100, "ready": True, "message": "Ready"}]
        for event in self.events.get(name, events):
            if event == "hold":
                await self.go.wait()
                continue
            if event.get("ready") and name in self.servers:
                self.has(name, **self.servers[name]["user_options"])
            if event.get("failed"):
                self.servers.pop(name, None)
            await answer.write(f"data: {json.dumps({**event, 'url': f'/user/ada/{name}/'})}\n\n".encode())
        return answer

    async def look(self, request):
        name = request.match_info["name"]
        if name in self.hung:
            await asyncio.Event().wait()
        info = {"worker": name, "ranks": 2, "profile": "cpu", "backend": "", "host": f"host-{name}", "address": ""}
        rest = {"node": "", "backends": ["torch"], "idle_minutes": 30.0, "idle_seconds": 60.0}
        runs = [run for run, worker in self.runs.items() if worker == name]
        return web.json_response({"info": {**info, **rest}, "usage": {**USAGE, "time": time.time()}, "runs": runs})

    async def log(self, request):
        if request.match_info["name"] in self.hung:
            await asyncio.Event().wait()
        size = len(self.logged)
        offset = min(int(request.query["offset"]), size)
        return web.json_response({"offset": offset, "next": size, "size": size, "text": self.logged[offset:]})


class PanelServer:
    """A client of a notebook server. It sends requests as the panel's page does."""

    def __init__(self, url, session, token=PAGE_TOKEN, app=None):
        self.url, self.session, self.app = url, session, app
        self.answers = []
        self._headers = {"Authorization": f"token {token}"}

    async def ask(self, method, path, status=200, **options):
        """Send a request with the page's token, and return the answer as JSON or text."""
        async with self.session.request(method, self.url + path, headers=self._headers, **options) as answer:
            text = await answer.text()
            assert answer.status == status, f"{answer.status}: {text}"
            self.answers.append(text)
            return json.loads(text) if text and answer.content_type == "application/json" else text

    @asynccontextmanager
    async def stream(self, *, seen=True):
        """Open the event stream as a page with a visible or hidden panel, and yield a reader of the messages."""
        async with self.session.ws_connect(self.url + "events", headers=self._headers) as socket:
            stream = Stream(socket, self.answers)
            await stream.watch(seen=seen)
            yield stream


class Stream:
    def __init__(self, socket, answers):
        self.socket, self.answers = socket, answers
        self.heard = []

    async def watch(self, *runs, followed=(), by_rank=False, logs=(), seen=True):
        rest = {"runs": list(runs), "followed": list(followed), "by_rank": by_rank, "logs": list(logs)}
        await self.socket.send_json({"kind": "watch", "seen": seen, **rest})

    def log(self):
        """Return the log text that has been received so far."""
        return "".join(message["part"]["text"] for message in self.heard if message["kind"] == "log")

    async def known(self, kind, wanted=lambda _message: True):
        """Return the last received message of this kind if it matches, or else wait for the next message that does."""
        last = next((message for message in reversed(self.heard) if message["kind"] == kind), None)
        return last if last is not None and wanted(last) else await self.until(kind, wanted)

    async def until(self, kind, wanted=lambda _message: True, *, seconds=DEADLINE):
        """Wait for the next message of this kind that matches, and return it."""
        async with asyncio.timeout(seconds):
            while True:
                received = await self.socket.receive()
                assert received.type == aiohttp.WSMsgType.TEXT, received
                self.answers.append(received.data)
                message = json.loads(received.data)
                self.heard.append(message)
                if message["kind"] == kind and wanted(message):
                    return message


@asynccontextmanager
async def panel_server(folder, monkeypatch, hub=None):
    """Run a notebook server with a run store in ``folder``, and optionally with a hub."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    monkeypatch.setenv("FARANDOLE_RUNS", str(folder / "runs"))
    for variable in ("FARANDOLE_HUB_URL", "JUPYTERHUB_API_TOKEN", "FARANDOLE_PROFILES", "FARANDOLE_LIMITS"):
        monkeypatch.delenv(variable, raising=False)
    if hub is None:
        async with _notebook(folder) as server:
            yield server
        return
    async with served(hub.application()) as url:
        monkeypatch.setenv("FARANDOLE_HUB_URL", url)
        monkeypatch.setenv("JUPYTERHUB_API_TOKEN", TOKEN)
        monkeypatch.setenv("FARANDOLE_PROFILES", json.dumps(PROFILES))
        monkeypatch.setenv("FARANDOLE_LIMITS", json.dumps({"workers_per_user": 4, "ranks_per_worker": 2}))
        async with _notebook(folder) as server:
            yield server
    assert not [text for text in server.answers if TOKEN in text], "the hub's token has reached the page"


@asynccontextmanager
async def _notebook(folder):
    home = folder / "home"
    home.mkdir(exist_ok=True)
    app = ServerApp(port=0, root_dir=str(home), jpserver_extensions={"farandole.server.notebook": True})
    arguments = ["--allow-root", "--no-browser", f"--IdentityProvider.token={PAGE_TOKEN}"]
    app.initialize(arguments, new_httpserver=False)
    listener, port = bind_unused_port()
    http = HTTPServer(app.web_app)
    http.add_sockets([listener])
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield PanelServer(f"http://127.0.0.1:{port}/farandole/panel/", session, app=app)
    http.stop()
    await http.close_all_connections()
    await app._cleanup()
