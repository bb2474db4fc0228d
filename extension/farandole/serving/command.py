"""``python -m farandole.serving.command -- COMMAND``: run a user's own server as an endpoint, behind the hub's login.

jupyter-server-proxy starts the command and passes requests on to it. In the command, ``{port}`` stands for the port on
which it has to listen, and ``{base_url}`` for the path of the endpoint. The port is also in the environment, as PORT.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from jupyter_server_proxy.standalone.app import StandaloneProxyServer
from tornado import ioloop, web
from tornado.httputil import HTTPServerRequest
from traitlets import default

from farandole.serving import CACHE_SECONDS
from farandole.serving.activity import report_activity

START_SECONDS = 120
"""Seconds that a command may take to listen. Large models take long to load."""
HUB_COOKIES = ("jupyterhub-", "_xsrf")
"""The beginnings of the names of cookies with which the hub's users log in."""
NOT_PASSED_ON = ("Authorization", "Cookie")
SAFE = ("GET", "HEAD")
"""The methods of requests that change nothing."""


class AdmittedHandler:
    """Admits each request, and removes the credentials from what the command receives.

    jupyter-server-proxy's standalone handler does not check WebSockets, nor whether a page of another origin has sent a
    request with the cookies of the browser's user, and passes on the tokens and cookies of callers, who may be other
    users of the hub.
    """

    async def prepare(self: Any) -> None:
        """Answer 403, or redirect browsers to the login, unless the caller may access the endpoint."""
        await asyncio.to_thread(lambda: self.current_user)
        if self.request.method in SAFE and "websocket" not in self.request.headers.get("Upgrade", "").lower():
            web.authenticated(lambda _handler: None)(self)
        elif not self.current_user or not (_has_token(self.request) or _is_own_page(self.request)):
            raise web.HTTPError(403)

    def proxy_request_headers(self: Any) -> Any:
        """Return the headers for the command."""
        headers = super().proxy_request_headers()  # type: ignore[misc]
        cookies = _foreign_cookies(headers.get("Cookie", ""))
        for name in NOT_PASSED_ON:
            headers.pop(name, None)
        if cookies:
            headers["Cookie"] = cookies
        return headers


def _has_token(request: HTTPServerRequest) -> bool:
    """Return whether a request is that of a program. No page can send this header to another origin."""
    return "Authorization" in request.headers


def _is_own_page(request: HTTPServerRequest) -> bool:
    """Return whether a browser says that a page of the endpoint's own origin has sent a request."""
    origin = request.headers.get("Origin")
    if origin is None or origin == "null":
        return request.headers.get("Sec-Fetch-Site") == "same-origin"
    return urlsplit(origin).netloc.lower() == request.host.lower()


def _foreign_cookies(text: str) -> str:
    """Return those cookies of a header that are not the hub's."""
    try:
        found = SimpleCookie(text)
    except CookieError:
        return ""
    kept = (cookie for cookie in found.values() if not cookie.key.startswith(HUB_COOKIES))
    return "; ".join(f"{cookie.key}={cookie.coded_value}" for cookie in kept)


class CommandServer(StandaloneProxyServer):  # type: ignore[misc]
    """The server of an endpoint that runs a user's command."""

    @default("timeout")
    def _default_timeout(self) -> int:
        return START_SECONDS

    @default("activity_interval")
    def _default_activity_interval(self) -> int:
        # It would report activity without requests, so that the endpoint would never be idle.
        return 0

    @default("environment")
    def _default_environment(self) -> dict[str, str]:
        return {"PORT": "{port}"}

    def get_proxy_base_class(self) -> tuple[type | None, dict[str, Any]]:
        """Return the class of the handlers, and their arguments."""
        base, arguments = super().get_proxy_base_class()
        return base and type("CommandHandler", (AdmittedHandler, base), {}), arguments

    def create_app(self) -> web.Application:
        """Return the application, which starts the command at once and reports when it was last used."""
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
