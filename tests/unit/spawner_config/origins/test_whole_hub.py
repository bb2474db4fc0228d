"""Tests with a complete JupyterHub and a deployment's configuration, but without a proxy or servers."""

import http.server
import json
import os
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from jupyterhub import orm
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from hub.process import CONFIG
from spawner_config.local import free_port
from spawner_config.operators.notices import Notice, Notices
from spawner_config.origins.application import FarandoleHub
from spawner_config.origins.certificates import PATH
from spawner_config.origins.hosts import host_label

OWN = "hub.localhost:8000"
PROXIED = {"X-Forwarded-For": "10.0.0.7"}


@asynccontextmanager
async def running(application, config=CONFIG):
    await application.initialize(["-f", str(config)])
    listener, port = bind_unused_port()
    server = HTTPServer(application.tornado_application, xheaders=True)
    server.add_socket(listener)
    try:
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", cookie_jar=jar) as session:
            yield session
    finally:
        server.stop()
        await server.close_all_connections()
        application.db.close()


@pytest.fixture
def application(monkeypatch, tmp_path):
    monkeypatch.setenv("FARANDOLE_STATE", str(tmp_path))
    monkeypatch.delenv("FARANDOLE_DOMAIN", raising=False)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "unused")
    return FarandoleHub(log_level=30)


async def ask(session, method, path, host=OWN, **options):
    headers = {"Host": host, **PROXIED, **options.pop("headers", {})}
    async with session.request(method, path, headers=headers, allow_redirects=False, **options) as answer:
        cookies = {name: morsel.value for name, morsel in answer.cookies.items()}
        return answer.status, answer.headers, await answer.text(), cookies


async def test_the_login_is_on_the_hubs_own_host_only(application, tmp_path):
    async with running(application) as session:
        for host in ("ada.hub.localhost:8000", "127.0.0.1:8000"):
            status, headers, text, cookies = await ask(session, "GET", "/hub/login?next=/hub/home", host)
            assert (status, headers["Location"]) == (302, f"http://{OWN}/hub/login?next=/hub/home")
            assert (text, cookies) == ("", {})
        status, _, text, cookies = await ask(session, "GET", "/hub/login")
        assert (status, "Password:" in text) == (200, True)
        password = (tmp_path / "password").read_text().strip()
        form = {"username": "ada", "password": password, "_xsrf": cookies["_xsrf"]}
        sent = {"Cookie": f"_xsrf={cookies['_xsrf']}", "Origin": f"http://{OWN}"}
        assert (await ask(session, "POST", "/hub/login", "ada.hub.localhost:8000", data=form, headers=sent))[0] == 421
        foreign = {**sent, "Origin": "http://eve.hub.localhost:8000"}
        assert (await ask(session, "POST", "/hub/login", data=form, headers=foreign))[0] == 421
        status, headers, _, cookies = await ask(session, "POST", "/hub/login", data=form, headers=sent)
        assert status == 302
        [login] = [value for value in headers.getall("Set-Cookie") if value.startswith("jupyterhub-hub-login=")]
        # Without a domain attribute, the cookie is sent only to the hub's host.
        assert "domain" not in login.lower()


async def test_servers_have_the_hosts_of_their_users(application):
    async with running(application) as session:
        for name in ("ada", "Ada Lovelace"):
            application.db.add(orm_user := orm.User(name=name))
            application.db.commit()
            user = application.users.add(orm_user)
            assert user.server_url("main-w0").startswith(f"http://{host_label(name)}.{OWN}/user/")
            assert user.proxy_spec == f"{host_label(name)}.hub.localhost/user/{user.escaped_name}/"
            status, headers, _, _ = await ask(
                session, "GET", f"/user/{user.escaped_name}/lab?x=1", f"{host_label(name)}.hub.localhost:8000"
            )
            assert (status, headers["Location"]) == (302, f"http://{OWN}/user/{user.escaped_name}/lab?x=1")
        _, headers, _, _ = await ask(session, "GET", "/user/ada/lab?x=1")
        assert headers["Location"].startswith(f"http://{OWN}/hub/user/ada/lab")


async def test_programs_reach_the_api_at_the_hubs_own_port(application):
    async with running(application) as session:
        for path in ("/hub/api", "/hub/health", "/hub/error/503?url=%2Fuser%2Fada"):
            async with session.get(path.replace("api", "api/"), headers={"Host": "hub:8081"}) as answer:
                assert answer.status in (200, 503), path
        async with session.get("/hub/login", headers={"Host": "hub:8081"}, allow_redirects=False) as answer:
            assert answer.headers["Location"] == f"http://{OWN}/hub/login"


async def test_the_health_check_sets_no_cookie_on_any_host(application):
    async with running(application) as session:
        for host in ("10.0.0.5:8000", "ada.hub.localhost:8000", OWN):
            assert (await ask(session, "GET", "/hub/health", host))[::3] == (200, {})


async def logged_in(session):
    """Log in as ada, and return the headers that her browser sends with a navigation."""
    _, _, _, cookies = await ask(session, "GET", "/hub/login")
    password = (Path(os.environ["FARANDOLE_STATE"]) / "password").read_text().strip()
    form = {"username": "ada", "password": password, "_xsrf": cookies["_xsrf"]}
    status, _, _, cookies = await ask(
        session,
        "POST",
        "/hub/login",
        data=form,
        headers={"Cookie": f"_xsrf={cookies['_xsrf']}", "Origin": f"http://{OWN}"},
    )
    assert status == 302
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()), "Sec-Fetch-Mode": "navigate"}


async def test_navigations_from_another_origin_create_no_server_and_keep_the_login(application):
    async with running(application) as session:
        browser = await logged_in(session)
        [ada] = [user for user in application.users.values() if user.name == "ada"]
        for site in ("same-site", "cross-site"):
            foreign = {**browser, "Sec-Fetch-Site": site}
            for path in ("/hub/spawn/ada/a1", "/hub/spawn/ada/a2?opt-profile=lean", "/hub/logout"):
                status, _, text, cookies = await ask(session, "GET", path, headers=foreign)
                assert (status, "Continue" in text, cookies) == (200, True, {})
            status, headers, _, _ = await ask(session, "GET", "/hub/spawn?opt-profile=lean", headers=foreign)
            assert (status, headers["Location"]) == (302, f"http://{OWN}/hub/spawn")
            status, _, text, _ = await ask(session, "GET", "/hub/spawn", headers=foreign)
            assert (status, 'value="lean"' in text) == (200, True)
        assert set(ada.orm_spawners) == {""}
        assert not ada.active
        # When the user follows the link on that page, the hub creates the server.
        own = {**browser, "Sec-Fetch-Site": "same-origin"}
        assert (await ask(session, "GET", "/hub/spawn/ada/a1", headers=own))[0] == 200
        assert set(ada.orm_spawners) == {"", "a1"}
        assert not ada.spawners["a1"].active


async def test_one_origin_is_named_on_the_administrators_page(application, monkeypatch):
    monkeypatch.setenv("FARANDOLE_ORIGINS", "one")
    async with running(application) as session:
        assert application.subdomain_host == ""
        assert (await ask(session, "GET", "/hub/login", "10.0.0.5:8000"))[0] == 200
        pages = application.tornado_settings["jinja2_env_sync"]
        given = {"static_url": lambda *_, **__: "", "base_url": "/hub/", "accounts": []}
        # For each page, JupyterHub replaces functions among the variables by their results.
        given |= {**application.template_vars, "notices": []}
        assert "act as the user who opens it" in pages.get_template("admin.html").render(given)
        assert "act as the user who opens it" in pages.get_template("accounts.html").render(given)


SITE = """
load_subconfig({config!r})
c.JupyterHub.template_vars.update(announcement="Lunch is at noon.", announcement_home="Welcome home.")
"""


async def test_notices_and_the_sites_own_announcements_are_both_shown(application, tmp_path):
    site = tmp_path / "site_config.py"
    site.write_text(SITE.format(config=str(CONFIG)))
    async with running(application, site) as session:
        browser = await logged_in(session)
        notices = Notices(tmp_path)
        notices.add("ada", Notice(by="olga", at=datetime.now(UTC), text="<b>Bye</b>.", servers=("",)))
        # A user of the same name, who is gone, got this one.
        notices.add("ada", Notice(by="olga", at=datetime.now(UTC) - timedelta(days=1), text="Not for you."))
        for path, announcement in (("/hub/home", "Welcome home."), ("/hub/spawn/ada", "Lunch is at noon.")):
            status, _, text, _ = await ask(session, "GET", path, headers={**browser, "Sec-Fetch-Site": "same-origin"})
            assert (status, announcement in text) == (200, True)
            assert "UTC</time>: olga stopped your notebook server. Reason: &lt;b&gt;Bye&lt;/b&gt;." in text
            assert "time.textContent = " in text
            assert "Not for you." not in text
        assert "Lunch is at noon." in (await ask(session, "GET", "/hub/login"))[2]


@pytest.fixture
def process():
    """Run an HTTP server in place of a user's server, and yield its process id and port."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield process.pid, port
        process.kill()


async def test_servers_that_a_new_address_has_broken_are_named(application, process, monkeypatch, capfd):
    pid, port = process
    async with running(application):
        for name, host in (("ada", "ada.hub.localhost"), ("eve", "eve.lab.localhost")):
            client = orm.OAuthClient(
                identifier=f"jupyterhub-user-{name}-w", redirect_uri=f"http://{host}:8000/user/{name}/w/oauth_callback"
            )
            server = orm.Server(ip="127.0.0.1", port=port, base_url=f"/user/{name}/w/")
            spawner = orm.Spawner(name="w", state={"pid": pid}, server=server, oauth_client=client)
            spawner.user = orm.User(name=name)
            application.db.add(spawner)
        application.db.commit()
    for key, value, broken in (
        ("FARANDOLE_DOMAIN", "", "eve/w"),
        ("FARANDOLE_DOMAIN", "lab.localhost", "ada/w"),
        ("FARANDOLE_ORIGINS", "one", "ada/w, eve/w"),
    ):
        monkeypatch.setenv(key, value)
        async with running(FarandoleHub(log_level=30)):
            [said] = [line for line in capfd.readouterr().err.splitlines() if "Stop these servers at" in line]
            assert said.endswith(f"cannot use them: {broken}")


@pytest.mark.parametrize(("command", "timeout"), [(["false"], 30), (["sleep", "60"], 1)])
async def test_the_hub_starts_without_a_service_that_fails_or_is_slow(application, command, timeout, caplog):
    async with running(application):
        service = application._service_map["operators"]
        service.command, service.timeout = command, timeout
        try:
            assert await application.start_service("operators", service)
        finally:
            await service.stop()
    assert "The hub continues without the service 'operators'" in caplog.text


class Engine(http.server.BaseHTTPRequestHandler):
    """A container engine without any containers or networks."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"ApiVersion": "1.45"} if self.path == "/version" else []).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def behind_caddy(application, monkeypatch):
    """The hub of docker-compose.yml with Caddy in front of it."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for key, value in {
        "COMPOSE_PROFILES": "caddy",
        "CONFIGPROXY_AUTH_TOKEN": "0123456789abcdef" * 4,
        "DOCKER_HOST": f"tcp://127.0.0.1:{server.server_port}",
        "FARANDOLE_ADMIN": "ada",
        "FARANDOLE_ADMIN_PASSWORD": "N4vzUqPqzHnVJb1m",
        "FARANDOLE_DEPLOYMENT": "docker",
        "FARANDOLE_DOMAIN": "hub.example.org",
        "FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook",
    }.items():
        monkeypatch.setenv(key, value)
    yield application
    server.shutdown()
    server.server_close()


async def test_caddy_gets_certificates_for_the_hosts_of_the_hub_and_of_its_users_only(behind_caddy):
    answers = {"": 204, "ada.": 204, "nobody.": 404, "x.ada.": 404, "hub.example.org.": 404}
    async with running(behind_caddy) as session:
        for label, status in answers.items():
            asked = {"domain": f"{label}hub.example.org", "token": os.environ["CONFIGPROXY_AUTH_TOKEN"]}
            async with session.get(f"/hub{PATH}", params=asked, headers={"Host": "hub:8081"}) as answer:
                assert answer.status == status, label
        asked["domain"] = "hub.example.org"
        assert (await ask(session, "GET", f"/hub{PATH}", "hub.example.org", params=asked))[0] == 404


async def test_behind_https_the_cookies_of_users_servers_are_secure(behind_caddy):
    async with running(behind_caddy):
        environment = behind_caddy.users.get("ada").spawners[""].get_env()
        assert json.loads(environment["JUPYTERHUB_COOKIE_OPTIONS"]) == {"secure": True}


async def test_sign_ups_through_caddy_count_for_the_addresses_of_its_clients(behind_caddy):
    async with running(behind_caddy):
        assert behind_caddy.authenticator.tls_servers == ["caddy"]
