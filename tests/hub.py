"""Runs a real hub for tests, with free ports and a separate state folder."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil

from hub.process import CONFIG, HubProcess, command_of, local_session, processes_of
from spawner_config.local import free_port
from spawner_config.roles import NOTEBOOK_SCOPES
from spawner_config.settings import ROOT, Settings
from tests.clients.browser import Browser
from tests.clients.hosts import url_of
from tests.variables import with_variables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import requests

PROFILES = ROOT / "hub" / "profiles.toml"
START_DEADLINE = 120.0
LIMITED_USER = "quinn"
"""The user whose home has a limited size on the hub that most tests share."""
METRICS_TOKEN = "0123456789abcdef" * 4
"""The token with which tests read the metrics of the hub that has operators."""


class RunningHub:
    """A running hub, with the actions that tests perform on it."""

    def __init__(self, process: HubProcess) -> None:
        self.process = process
        self.url = process.url
        self.password = process.password
        self.state = process.settings.state

    def browser(self, user: str, password: str = "") -> Browser:
        """Return a browser in which ``user`` is logged in, by default with the password that all users share."""
        return Browser(self.url, user, password or self.password)

    def token_for(self, user: str, scopes: list[str] | None = None) -> str:
        """Return a new token for ``user``, by default with the scopes of a notebook server."""
        return self.browser(user).make_token(NOTEBOOK_SCOPES if scopes is None else scopes)

    def start_notebook(self, user: str, profile: str = "cpu") -> str:
        """Start the user's notebook server and return its address, without a trailing slash."""
        return self.browser(user).start_notebook(profile)

    def api(self, token: str, method: str, path: str, body: Any = None) -> requests.Response:
        """Send a request with a token to ``path`` at the hub or at a user's server, and return the response."""
        headers = {"Authorization": f"token {token}"}
        return local_session().request(method, url_of(self.url, path), json=body, headers=headers, timeout=30)

    def start_worker(self, token: str, user: str, name: str, **options: Any) -> None:
        """Start a worker and wait until it is ready. Raises AssertionError with the hub's reason if the start fails."""
        path = f"/hub/api/users/{user}/servers/{name}"
        answer = self.api(token, "POST", path, {"role": "worker", **options})
        assert answer.status_code in (201, 202), answer.text
        last = self.progress(token, f"{path}/progress")
        assert last.get("ready"), last

    def progress(self, token: str, path: str) -> dict[str, Any]:
        """Return the last progress event of a server's start."""
        headers = {"Authorization": f"token {token}"}
        with local_session().get(f"{self.url}{path}", headers=headers, stream=True, timeout=START_DEADLINE) as answer:
            lines = [line for line in answer.iter_lines(decode_unicode=True) if line.startswith("data: ")]
        return json.loads(lines[-1].removeprefix("data: ")) if lines else {}

    def environment_of(self, user: str, server: str) -> dict[str, str]:
        """Return the environment of a server's process, including the server's token."""
        return self._server(user, server).environ()

    def kill_server(self, user: str, server: str) -> None:
        """Kill a server with SIGKILL. Its kernels detect that the server is gone, and exit."""
        self._server(user, server).kill()

    def _server(self, user: str, server: str) -> psutil.Process:
        for process in processes_of(self.state):
            with suppress(psutil.NoSuchProcess):
                environment = process.environ()
                names = environment.get("JUPYTERHUB_USER"), environment.get("JUPYTERHUB_SERVER_NAME")
                if names == (user, server) and "ipykernel_launcher" not in process.cmdline():
                    return process
        raise AssertionError(f"no process of {user}'s server {server!r}")

    def kill_proxy(self) -> None:
        """Kill the proxy with SIGKILL. The hub then starts a new proxy."""
        for proxy in self._processes("configurable-http-proxy"):
            with suppress(psutil.NoSuchProcess):
                proxy.kill()
            proxy.wait(10)

    def kill_and_restart(self) -> None:
        """Kill the hub with its proxy and its services, and start another hub with the same state."""
        self.process.process.kill()
        self.process.process.wait(10)
        self.kill_proxy()
        # A killed hub cannot stop its services, and the next hub starts new ones.
        for name in ("spawner_config.lifecycle.culler", "hub.services.operators"):
            for service in self._processes(name):
                with suppress(psutil.NoSuchProcess):
                    service.kill()
        self.process.release()
        self.process = HubProcess(self.process.settings)
        self.process.wait_ready()

    def _processes(self, part: str) -> list[psutil.Process]:
        return [one for one in processes_of(self.state) if part in command_of(one)]

    def logs(self) -> str:
        """Return the last lines of the hub's log and of every server's log."""
        paths = [self.process.log_path, *sorted((self.state / "logs").glob("*.log"))]
        return "\n".join(f"--- {path.name}\n{_tail(path)}" for path in paths)


def _tail(path: Path, lines: int = 40) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


@contextmanager
def run_hub(
    state: Path, profiles: Path | None = None, config: Path = CONFIG, *, one_origin: bool = False
) -> Iterator[RunningHub]:
    """Run a hub, by default with the repository's profiles.

    The test fails if a process is still running after the hub has stopped. The hub's logs are printed if it fails.
    """
    if profiles is None:
        profiles = state.with_name(f"{state.name}-profiles.toml")
        profiles.write_text(with_variables(PROFILES.read_text()))
    settings = Settings(port=free_port(), state=state, profiles=profiles, one_origin=one_origin)
    running = RunningHub(HubProcess(settings, config))
    try:
        running.process.wait_ready()
        yield running
    except BaseException:
        # pytest adds the logs of a hub to the report only if the hub is a fixture of the test.
        print(running.logs())
        raise
    finally:
        # A test may have replaced the hub's process, so stop the current process.
        leftovers = running.process.stop()
    if leftovers:
        print(running.logs())
    assert not leftovers, f"processes outlived their hub and had to be killed: {leftovers}"
