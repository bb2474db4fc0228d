"""An HTTP client that uses the hub as a browser does. It submits the login and spawn forms and requests tokens."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import requests

from hub.process import local_session, wait_until
from tests.clients.hosts import url_of

SPAWN_DEADLINE = 120.0
STOP_DEADLINE = 180.0
POLL_SECONDS = 0.2


class BrowserError(RuntimeError):
    """Raised when the hub refuses a request. The message contains the hub's reason."""


class Browser:
    """The browser of a user who is logged in to the hub at ``url``."""

    def __init__(self, url: str, user: str, password: str) -> None:
        """Log in. Raises `BrowserError` if the hub refuses the login."""
        self.url = url
        self.user = user
        self._name = quote(user, safe="")
        self._session = local_session()
        self._session.get(f"{url}/hub/login", timeout=30).raise_for_status()
        form = {"username": user, "password": password, "_xsrf": self._xsrf()}
        answer = self._session.post(f"{url}/hub/login", data=form, allow_redirects=False, timeout=30)
        if answer.status_code != 302:
            raise BrowserError(f"The hub refused the login of {user!r} (HTTP {answer.status_code}).")
        self._session.get(f"{url}/hub/home", timeout=30).raise_for_status()

    def _xsrf(self) -> str:
        return next(cookie.value or "" for cookie in self._session.cookies if cookie.name == "_xsrf")

    @property
    def login_cookie(self) -> str:
        """The cookie with which the hub recognizes the user, as ``NAME=VALUE``."""
        return next(f"{each.name}={each.value}" for each in self._session.cookies if each.name.endswith("-hub-login"))

    def spawn_page(self) -> str:
        """Return the HTML of the spawn page, on which the user chooses a profile."""
        answer = self._session.get(f"{self.url}/hub/spawn/{self._name}", timeout=30)
        answer.raise_for_status()
        return answer.text

    def start_notebook(self, profile: str = "cpu") -> str:
        """Start the user's notebook server through the spawn page, wait until it is ready, and return its URL.

        Raises `BrowserError` with the hub's reason if the server does not start.
        """
        form = {"profile": profile, "_xsrf": self._xsrf()}
        page = f"{self.url}/hub/spawn/{self._name}"
        answer = self._session.post(page, data=form, allow_redirects=False, timeout=30)
        if answer.status_code != 302:
            raise BrowserError(f"The hub refused to start the server (HTTP {answer.status_code}): {answer.text[:500]}")
        self._wait_ready()
        return url_of(self.url, f"/user/{self._name}")

    def stop_notebook(self) -> None:
        """Stop the user's notebook server and wait until it has stopped."""
        where = f"{self.url}/hub/api/users/{self._name}/server"
        self._session.delete(where, headers={"X-XSRFToken": self._xsrf()}, timeout=60).raise_for_status()
        wait_until(lambda: not self.has_notebook(), STOP_DEADLINE)

    def has_notebook(self) -> bool:
        """Return whether the user has a notebook server. A server that is starting or stopping counts as well."""
        answer = self._session.get(f"{self.url}/hub/api/users/{self._name}", timeout=30)
        answer.raise_for_status()
        return "" in answer.json()["servers"]

    def _wait_ready(self) -> None:
        try:
            with self._progress() as events:
                for line in events.iter_lines(decode_unicode=True):
                    event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
                    if event.get("failed"):
                        raise BrowserError(f"The server did not start: {event.get('message')}")
                    if event.get("ready"):
                        return
        except requests.RequestException as exc:
            raise BrowserError(f"The stream of progress events broke before the server was ready: {exc}") from exc
        raise BrowserError("The hub closed the stream of progress events before the server was ready.")

    def _progress(self) -> requests.Response:
        """Open the stream of progress events. After a failed start, the hub answers 400 until it has cleaned up."""
        where = f"{self.url}/hub/api/users/{self._name}/server/progress"
        params = {"_xsrf": self._xsrf()}
        end = time.monotonic() + STOP_DEADLINE
        while True:
            answer = self._session.get(where, params=params, stream=True, timeout=SPAWN_DEADLINE)
            if answer.ok:
                return answer
            # The response is read completely, because only then is its connection returned to the pool.
            reason = answer.text[:500]
            if answer.status_code != 400 or time.monotonic() > end:
                raise BrowserError(f"The hub sends no progress events (HTTP {answer.status_code}): {reason}")
            time.sleep(POLL_SECONDS)

    def make_token(self, scopes: list[str] | None = None) -> str:
        """Return a new API token of the user. It has all of the user's permissions unless ``scopes`` limits them."""
        body: dict[str, Any] = {"note": "farandole"} if scopes is None else {"note": "farandole", "scopes": scopes}
        where = f"{self.url}/hub/api/users/{self._name}/tokens"
        answer = self._session.post(where, json=body, headers={"X-XSRFToken": self._xsrf()}, timeout=30)
        if answer.status_code != 201:
            raise BrowserError(f"The hub did not create a token (HTTP {answer.status_code}): {answer.text[:500]}")
        token: str = answer.json()["token"]
        return token
