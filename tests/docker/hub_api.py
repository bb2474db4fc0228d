"""Requests to a hub's API with the token of a user or the administrator."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hub.process import local_session, wait_until
from tests.clients.hosts import url_of
from tests.clients.kernel import RemoteKernel

if TYPE_CHECKING:
    import requests

    from tests.docker.remote_hub import RemoteHub

SPAWN_SECONDS = 420.0
STOP_SECONDS = 180.0


class HubApi:
    """A client for the hub's API. Its ``token`` has all rights of ``user``."""

    def __init__(self, stack: RemoteHub, user: str) -> None:
        self._stack = stack
        self.token = stack.browser(user).make_token()
        self._headers = {"Authorization": f"token {self.token}"}

    def request(self, method: str, path: str, body: Any = None) -> requests.Response:
        """Send a request to ``path``, which is relative to the API's URL."""
        url = f"{self._stack.url}/hub/api/{path}"
        return local_session().request(method, url, json=body, headers=self._headers, timeout=60)

    def ask(self, user: str, server: str = "", **options: Any) -> requests.Response:
        """Request a server and return the hub's response, which arrives before the server has started."""
        return self.request("POST", _path(user, server), options)

    def start(self, user: str, server: str = "", **options: Any) -> dict[str, Any]:
        """Request a server and return the last progress event of its start."""
        answer = self.ask(user, server, **options)
        assert answer.status_code in {201, 202}, answer.text
        return self.last_event(user, server)

    def last_event(self, user: str, server: str = "") -> dict[str, Any]:
        """Return the last progress event of a server's start.

        Retry while the hub answers 400, because it is cleaning up a failed start.
        """
        answers: list[requests.Response] = []
        url = f"{self._stack.url}/hub/api/{_path(user, server)}/progress"

        def accepted() -> bool:
            answers.append(local_session().get(url, headers=self._headers, stream=True, timeout=SPAWN_SECONDS))
            return answers[-1].status_code != 400

        wait_until(accepted, STOP_SECONDS)
        with answers[-1] as answer:
            answer.raise_for_status()
            lines = [line for line in answer.iter_lines() if line.startswith(b"data: ")]
        last: dict[str, Any] = json.loads(lines[-1].removeprefix(b"data: "))
        return last

    def servers(self, user: str) -> dict[str, Any]:
        """Return the user's servers by name."""
        found: dict[str, Any] = self.request("GET", f"users/{quote(user, safe='')}").json()["servers"]
        return found

    def stop(self, user: str, *servers: str) -> None:
        """Stop the servers and wait until the hub has stopped all of them."""
        for server in servers:
            # Retry, because the hub answers 400 while the server is still starting.
            wait_until(partial(self._delete, _path(user, server)), STOP_SECONDS)
        wait_until(lambda: not set(servers) & set(self.servers(user)), STOP_SECONDS)

    def _delete(self, path: str) -> bool:
        answer = self.request("DELETE", path, {"remove": True} if "/servers/" in path else None)
        return answer.status_code in {202, 204, 404}

    def kernel(self, user: str) -> RemoteKernel:
        """Return a kernel on the user's running notebook server, with this client's token."""
        address = url_of(self._stack.url, f"/user/{quote(user, safe='@')}")
        return RemoteKernel(address, self.token, "scratch.ipynb")


def _path(user: str, server: str) -> str:
    where = f"users/{quote(user, safe='')}"
    return f"{where}/servers/{server}" if server else f"{where}/server"
