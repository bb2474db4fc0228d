"""Tests for how the hub stops idle servers: the decision, the settings, and the culler's requests to the hub."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from jupyterhub.proxy import ConfigurableHTTPProxy
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler
from traitlets.config import Config, PyFileConfigLoader

from spawner_config.lifecycle.culler import Arbiter, ReportWindow
from spawner_config.lifecycle.idle import SERVICE, IdleLimits, QuietProxy, configure_idle, is_idle, tell_limits
from spawner_config.settings import ROOT, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIMITS = IdleLimits(worker_minutes=30, server_minutes=120)


def idle(server: str, ages: dict[str, float], *, reports: float = 2000, limits: IdleLimits = LIMITS) -> bool:
    """Return whether ``server`` is idle if the servers were last used ``ages`` minutes ago."""
    uses = {name: NOW - timedelta(minutes=age) for name, age in ages.items()}
    return is_idle(server, uses, limits, now=NOW, reports_since=NOW - timedelta(minutes=reports))


@pytest.mark.parametrize(
    ("server", "age", "expected"),
    [
        ("c-w0", 29, False),
        ("c-w0", 30, True),
        ("", 119, False),
        ("", 120, True),
        ("mine", 119, False),
        ("serve-iris", 1439, False),
        ("serve-iris", 1440, True),
    ],
)
def test_servers_of_each_role_have_a_limit(server: str, age: float, expected: bool) -> None:
    assert idle(server, {server: age}) == expected


def test_a_notebook_server_is_in_use_while_a_worker_of_its_user_is() -> None:
    assert not idle("", {"": 500, "c-w0": 0, "c-w1": 200})
    assert idle("c-w1", {"": 0, "c-w0": 0, "c-w1": 200})
    assert idle("", {"": 500, "serve-iris": 0})
    assert idle("", {"": 500, "mine": 0})
    assert idle("", {"": 500, "c-w0": 130})


def test_no_server_is_idle_before_the_hub_has_run_for_the_idle_time() -> None:
    assert not idle("c-w0", {"c-w0": 500}, reports=29)
    assert idle("c-w0", {"c-w0": 500}, reports=30)


def test_zero_disables_a_limit() -> None:
    limits = IdleLimits.from_environment({"FARANDOLE_IDLE_MINUTES": "0"})
    assert limits.server_minutes == 120
    assert not idle("c-w0", {"c-w0": 999}, limits=limits)
    assert idle("", {"": 999}, limits=limits)
    assert not idle("", {"": 999}, limits=IdleLimits(server_minutes=0))


def test_a_stopped_server_is_not_idle() -> None:
    assert not idle("c-w0", {})


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
@pytest.mark.parametrize("key", [f"FARANDOLE_IDLE_{what}MINUTES" for what in ("", "SERVER_", "ENDPOINT_")])
def test_an_invalid_time_is_named(key: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"{key} is '{text}'. It must be a number of minutes"):
        IdleLimits.from_environment({key: text})


def test_an_empty_variable_is_the_default_and_limits_survive_the_environment() -> None:
    assert IdleLimits.from_environment({"FARANDOLE_IDLE_MINUTES": ""}) == IdleLimits()
    limits = IdleLimits(worker_minutes=0.25, server_minutes=0, endpoint_minutes=60)
    assert IdleLimits.from_environment(limits.environment) == limits


@pytest.mark.parametrize(("minutes", "seconds"), [(30, 60), (1, 12), (0.01, 1), (0, 60)])
def test_servers_report_often_enough_for_the_idle_time(minutes: float, seconds: int) -> None:
    assert IdleLimits(worker_minutes=minutes, server_minutes=120).interval == seconds


def test_every_server_gets_the_limits_and_keeps_its_environment() -> None:
    spawner = SimpleNamespace(environment={"OWN": "1"})
    tell_limits(LIMITS, spawner)
    assert spawner.environment == {
        "OWN": "1",
        "FARANDOLE_IDLE_MINUTES": "30",
        "FARANDOLE_IDLE_SERVER_MINUTES": "120",
        "FARANDOLE_IDLE_ENDPOINT_MINUTES": "1440",
        "JUPYTERHUB_ACTIVITY_INTERVAL": "60",
    }


def test_the_service_has_minimal_scopes_and_runs_only_if_a_limit_is_set() -> None:
    c = Config()
    configure_idle(c, LIMITS)
    (role,) = c.JupyterHub.load_roles
    assert role["services"] == [SERVICE]
    assert set(role["scopes"]) == {"list:users", "read:users:activity", "read:servers", "delete:servers"}
    (service,) = c.JupyterHub.services
    assert "admin" not in service
    off = Config()
    configure_idle(off, IdleLimits(worker_minutes=0, server_minutes=0, endpoint_minutes=0))
    assert "services" not in off.JupyterHub


async def test_activity_reported_by_the_proxy_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async def routes(_: object) -> dict[str, Any]:
        return {"/user/ada/": {"target": "t", "data": {"user": "ada", "last_activity": "now"}}}

    monkeypatch.setattr(ConfigurableHTTPProxy, "get_all_routes", routes)
    assert await QuietProxy().get_all_routes() == {"/user/ada/": {"target": "t", "data": {"user": "ada"}}}


class Clock:
    """A machine's wall clock and monotonic clock, and a report window that opens when the clocks start."""

    def __init__(self, wall: datetime = NOW) -> None:
        self.wall, self.monotonic = wall, 0.0
        self.window = ReportWindow(timedelta(minutes=2), wall=lambda: self.wall, monotonic=lambda: self.monotonic)

    def passes(self, minutes: float) -> None:
        self.wall += timedelta(minutes=minutes)
        self.monotonic += 60 * minutes

    def jumps(self, minutes: float) -> None:
        """Advance only the wall clock, as happens when the machine is suspended or the system time is changed."""
        self.wall += timedelta(minutes=minutes)

    def idle(self, server: str, use: datetime) -> bool:
        now, since = self.window.look()
        return is_idle(server, {server: use}, LIMITS, now=now, reports_since=since)


def test_after_a_suspend_a_busy_server_has_the_full_time_to_report() -> None:
    clock = Clock()
    clock.passes(600)
    used = clock.wall
    clock.jumps(480)
    assert not clock.idle("c-w0", used)
    clock.passes(29)
    assert not clock.idle("c-w0", used)
    clock.passes(1)
    assert clock.idle("c-w0", used)


@pytest.mark.parametrize("minutes", [-600, 3])
def test_the_window_of_reports_restarts_when_the_clock_is_set(minutes: float) -> None:
    clock = Clock()
    clock.passes(60)
    clock.jumps(minutes)
    assert clock.window.look() == (clock.wall, clock.wall)


def test_only_the_sum_of_small_clock_corrections_restarts_the_window() -> None:
    clock = Clock()
    clock.jumps(1.5)
    clock.passes(60)
    assert clock.window.look() == (clock.wall, NOW)
    clock.jumps(1.5)
    assert clock.window.look() == (clock.wall, clock.wall)


def test_the_window_stays_open_on_this_machine() -> None:
    window = ReportWindow(timedelta(days=1))
    began = window.look()[1]
    now, since = window.look()
    assert since == began <= now


class Engine(BaseHTTPRequestHandler):
    """A fake container engine with the endpoints that the hub's configuration requests: version and networks."""

    def do_GET(self) -> None:
        answer = json.dumps({"ApiVersion": "1.41"} if self.path == "/version" else []).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Do not log requests."""


@contextmanager
def engine() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("minutes", ["0.5", "0"])
@pytest.mark.parametrize("deployment", ["docker", "local"])
def test_the_configuration_of_every_deployment_has_a_quiet_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deployment: str, minutes: str
) -> None:
    with engine() as address:
        for key, value in {
            "FARANDOLE_DEPLOYMENT": deployment,
            "FARANDOLE_STATE": str(tmp_path),
            "FARANDOLE_IDLE_MINUTES": minutes,
            "FARANDOLE_IDLE_SERVER_MINUTES": minutes,
            "FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:0.1.0",
            "FARANDOLE_ADMIN": "ada",
            "FARANDOLE_ADMIN_PASSWORD": "a long enough one",
            "CONFIGPROXY_AUTH_TOKEN": "0123456789abcdef" * 4,
            "DOCKER_HOST": address,
        }.items():
            monkeypatch.setenv(key, value)
        # The configuration file adds the repository's folder to sys.path, so restore sys.path after the test.
        monkeypatch.setattr(sys, "path", [*sys.path])
        c = PyFileConfigLoader("jupyterhub_config.py", path=str(ROOT / "hub")).load_config()
    assert issubclass(c.JupyterHub.proxy_class, QuietProxy)


class Hub(RequestHandler):
    """A fake of the hub's API with the request that `Arbiter` sends. It returns a user's servers."""

    def initialize(self, servers: dict[str, Any]) -> None:
        self.servers = servers

    def get(self) -> None:
        assert self.request.headers["Authorization"] == "token secret"
        self.finish(json.dumps({"servers": self.servers}))


def model(user: str, name: str, minutes: float) -> dict[str, Any]:
    where = f"servers/{name}" if name else "server"
    time = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    return {
        "name": name,
        "last_activity": time,
        "started": time,
        "progress_url": f"/hub/api/users/{user}/{where}/progress",
    }


@pytest.mark.parametrize(
    ("name", "then", "now", "expected"),
    [
        ("c-w0", {"c-w0": 40}, {"c-w0": 40}, True),
        ("c-w0", {"c-w0": 40}, {"c-w0": 0}, False),
        ("c-w0", {"c-w0": 40}, {}, False),
        ("", {"": 200}, {"": 200, "c-w0": 1}, False),
        ("servers1", {"servers1": 200}, {"servers1": 200, "": 0}, True),
    ],
)
async def test_the_culler_checks_all_servers_of_the_user_again(
    name: str, then: dict[str, float], now: dict[str, float], expected: bool
) -> None:
    user = "%2e%2f%20x"
    servers = {each: model(user, each, age) for each, age in now.items()}
    listener, port = bind_unused_port()
    application = Application([(f"/hub/api/users/{user}", Hub, {"servers": servers})])
    web = HTTPServer(application)
    web.add_socket(listener)
    clock = Clock(datetime.now(UTC) - timedelta(days=1))
    clock.passes(60 * 24)
    arbiter = Arbiter(
        limits=LIMITS,
        api_url=f"http://127.0.0.1:{port}/hub/api",
        token="secret",
        window=clock.window,
    )
    try:
        assert await arbiter(server=model(user, name, then[name]), inactive=None, inactive_limit=600) == expected
    finally:
        web.stop()
