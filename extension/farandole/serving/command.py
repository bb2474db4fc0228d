"""``python -m farandole.serving.command -- COMMAND``: run a user's own server as an endpoint, behind the hub's login.

This starts the command, and jupyter-server-proxy passes requests on to it. In the command, ``{port}`` stands for the
port on which it has to listen, and ``{base_url}`` for the path of the endpoint. The port is also in the environment, as
PORT. If the command does not start, this process ends with an error, so that the hub reports a failed start.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from jupyter_server_proxy.standalone.app import StandaloneProxyServer
from simpervisor import SupervisedProcess
from tornado import ioloop, web
from tornado.httputil import HTTPServerRequest
from traitlets import default

from farandole.serving import CACHE_SECONDS
from farandole.serving.activity import report_activity

START_SECONDS = 120
"""Seconds that a command may take to listen. Large models take long to load."""
POLL_SECONDS = 0.1
HUB_COOKIES = ("jupyterhub-", "_xsrf")
"""The beginnings of the names of cookies with which the hub's users log in."""
HOST_PREFIX = "__Host-"
"""The prefix of these names on a hub with HTTPS."""
TOKEN_ARGUMENT = "token"
"""The argument of a URL with which the hub's users log in, for example with WebSockets."""
NOT_PASSED_ON = ("Authorization", "Cookie")
SAFE = ("GET", "HEAD")
"""The methods of requests that change nothing."""
POLICY_VIOLATION = 1008
"""The code with which a server closes a WebSocket that is not allowed (RFC 6455)."""


class CommandError(Exception):
    """Raised when the command of an endpoint does not start."""


class AdmittedHandler:
    """Admits each request, and removes the credentials from what the command receives, and from the log.

    jupyter-server-proxy's standalone handler does not check WebSockets, nor whether a page of another origin has sent a
    request with the cookies of the browser's user, and passes on the tokens and cookies of callers, who may be other
    users of the hub.
    """

    _checks: ioloop.PeriodicCallback | None = None

    def __init__(self: Any, application: web.Application, request: HTTPServerRequest, **options: Any) -> None:
        """Remove tokens from the URL."""
        # Tornado has already read the arguments, in which JupyterHub finds the token. It logs the URLs of failed
        # requests, some of which it refuses before it calls `prepare`.
        request.query = _without_token(request.query)
        request.uri = "?".join(filter(None, (request.path, request.query)))
        super().__init__(application, request, **options)  # type: ignore[call-arg]

    async def prepare(self: Any) -> None:
        """Answer 403, or redirect browsers to the login, unless the caller may access the endpoint."""
        user = await asyncio.to_thread(lambda: self.current_user)
        if not user and "Authorization" in self.request.headers:
            # A program would follow the redirect, and take the page of the login for an answer.
            raise web.HTTPError(403)
        if self.request.method not in SAFE or "websocket" in self.request.headers.get("Upgrade", "").lower():
            # JupyterHub sets the attribute if a token has identified the user. No page of another origin has the token.
            by_token = getattr(self, "_token_authenticated", False)
            if not user or not (by_token or _is_own_page(self.request)):
                raise web.HTTPError(403)
        web.authenticated(lambda _handler: None)(self)

    async def open(self: Any, *path: str) -> None:
        """Connect a WebSocket to the command."""
        # JupyterHub caches its answers for CACHE_SECONDS. With checks at this interval, a cached answer that has not
        # expired at one check would let a revoked token work for twice this time.
        self._checks = ioloop.PeriodicCallback(self._check_again, 1000 * CACHE_SECONDS / 2)
        self._checks.start()
        await super().open(*path)  # type: ignore[misc]

    def on_close(self: Any) -> None:
        """Close the connection to the command, too. Tornado also calls this for requests that are no WebSockets."""
        if self._checks:
            self._checks.stop()
        super().on_close()  # type: ignore[misc]

    async def _check_again(self: Any) -> None:
        """Close the WebSocket unless its caller may still access the endpoint."""
        # JupyterHub asks once for each request, and keeps the answers in these attributes.
        for kept in ("_hub_auth_user_cache", "_cached_hub_user"):
            vars(self).pop(kept, None)
        try:
            user = await asyncio.to_thread(self.get_current_user)
        except web.HTTPError:
            # The hub does not answer, for example because it restarts.
            return
        if not user:
            self.close(POLICY_VIOLATION, "the login has expired, or was revoked")

    def proxy_request_headers(self: Any) -> Any:
        """Return the headers for the command."""
        headers = super().proxy_request_headers()  # type: ignore[misc]
        cookies = _foreign_cookies(headers.get("Cookie", ""))
        for name in NOT_PASSED_ON:
            headers.pop(name, None)
        if cookies:
            headers["Cookie"] = cookies
        return headers


def _is_own_page(request: HTTPServerRequest) -> bool:
    """Return whether a browser says that a page of the endpoint's own origin has sent a request."""
    origin = request.headers.get("Origin")
    if origin is None or origin == "null":
        return request.headers.get("Sec-Fetch-Site") == "same-origin"
    return urlsplit(origin).netloc.lower() == request.host.lower()


def _without_token(query: str) -> str:
    """Return the query of a URL without the arguments that may have a token of the hub."""
    return "&".join(part for part in query.split("&") if unquote_plus(part.partition("=")[0]) != TOKEN_ARGUMENT)


def _foreign_cookies(text: str) -> str:
    """Return those cookies of a header that are not the hub's."""
    # Python's SimpleCookie finds no cookies if one is not valid. Tornado, with which the hub's users log in, does.
    cookies = (part.strip() for part in text.split(";"))
    return "; ".join(one for one in cookies if not one.removeprefix(HOST_PREFIX).startswith(HUB_COOKIES))


class Command(SupervisedProcess):  # type: ignore[misc]
    """The process of a command. It is started again if it fails after it has listened."""

    listens = False

    async def start(self) -> None:
        """Start the process, also after it has failed, but not if it has failed at its start."""
        if self.proc is None or self.listens:
            await super().start()

    async def until_listening(self, port: int) -> None:
        """Wait until the process listens. Raises CommandError if it has ended, or takes too long."""
        give_up = time.monotonic() + START_SECONDS
        while not await _listens(port):
            if not self.running:
                raise CommandError(
                    f"the command ended with the exit code {self.returncode} and did not listen on the port {port}; "
                    "its output is above"
                )
            if time.monotonic() > give_up:
                await self.kill()
                raise CommandError(
                    f"the command did not listen on the port {port} within {START_SECONDS} s; write {{port}} where it "
                    "needs the port, or read the environment variable PORT"
                )
            await asyncio.sleep(POLL_SECONDS)
        self.listens = True


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("localhost", port)
    except OSError:
        return False
    writer.close()
    return True


class CommandServer(StandaloneProxyServer):  # type: ignore[misc]
    """The server of an endpoint that runs a user's command."""

    _started: Command | None = None

    @default("server_port")
    def _default_server_port(self) -> int:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            return int(unused.getsockname()[1])

    @default("activity_interval")
    def _default_activity_interval(self) -> int:
        # It would report activity without requests, so that the endpoint would never be idle.
        return 0

    def start(self) -> None:
        """Start the command, then listen until a signal ends this process."""
        try:
            # jupyter-server-proxy would start it with the first request, and the hub would not notice a failure.
            ioloop.IOLoop.current().run_sync(self.start_command)
        except CommandError as exc:
            sys.exit(f"CommandError: {exc}")
        super().start()

    async def start_command(self) -> None:
        """Start the command, and wait until it listens. Raises CommandError if it does not."""
        words = [self._filled_in(word) for word in self.command]
        command = Command(words[0], *words, env={**os.environ, "PORT": str(self.server_port)}, log=self.log)
        try:
            await command.start()
        except OSError as exc:
            raise CommandError(
                f"the command {words[0]!r} cannot be run: {exc.strerror}; check its name, and where it is installed"
            ) from exc
        await command.until_listening(self.server_port)
        self._started = command

    def _filled_in(self, word: str) -> str:
        """Return a word of the command with the port and the path. All other braces, such as those of JSON, remain."""
        return word.replace("{port}", str(self.server_port)).replace("{base_url}", self.base_url)

    def get_proxy_base_class(self) -> tuple[type | None, dict[str, Any]]:
        """Return the class of the handlers, and their arguments, among which is the process that they do not start."""
        base, arguments = super().get_proxy_base_class()
        arguments["state"]["proc"] = self._started
        return base and type("CommandHandler", (AdmittedHandler, base), {}), arguments

    def create_app(self) -> web.Application:
        """Return the application, which reports when it was last used."""
        app: web.Application = super().create_app()
        app.settings["last_activity_times"] = {}
        started = time.time()

        def last_request() -> float:
            times: list[datetime] = [*app.settings["last_activity_times"].values()]
            return max((one.timestamp() for one in times), default=started)

        ioloop.IOLoop.current().add_callback(report_activity, os.environ, last_request)
        return app


def main() -> None:
    """Run the server."""
    from jupyterhub.services.auth import HubOAuth

    HubOAuth.instance(cache_max_age=CACHE_SECONDS)
    CommandServer.launch_instance()


if __name__ == "__main__":
    main()
