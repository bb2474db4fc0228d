"""A JupyterHub application that serves the hub's pages only on the hub's own host, and survives services that fail.

It also upgrades the hub's state to its version, and refuses the state of a newer version.

JupyterHub itself answers on every host. A login on a user's host would set the hub's cookie for that host, where the
user's own pages could use it.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jupyterhub import orm
from jupyterhub.app import JupyterHub
from jupyterhub.handlers.base import auth_header_pat
from tornado.routing import Matcher
from tornado.web import RequestHandler
from traitlets import List, Unicode

from spawner_config.access.transport import HSTS
from spawner_config.origins.navigations import (
    SAFE,
    ConfirmHandler,
    ForeignNavigation,
    NoOptionsHandler,
    SpawnOptions,
)
from spawner_config.settings import exit_on_bad_settings
from spawner_config.upgrades.start import upgrade_state

if TYPE_CHECKING:
    import ssl

    from tornado.httputil import HTTPHeaders, HTTPServerRequest

MISDIRECTED = 421
SERVERS = "/user/"
"""The beginning of the paths of users' servers."""
FORWARDED = "X-Forwarded-For"
"""The header that every proxy adds to the requests that it forwards. Servers, services, health checks and the proxy
itself send their own requests to the hub's port without this header."""
INTERNAL = ("api/", "health", "error/", "metrics")
"""The paths below the hub's prefix that programs request directly at the hub's port."""


def is_other_application() -> bool:
    """Return whether the hub runs as an application other than `FarandoleHub`, such as the command ``jupyterhub``."""
    return JupyterHub.initialized() and not isinstance(JupyterHub.instance(), FarandoleHub)


class FarandoleHub(JupyterHub):  # type: ignore[misc]
    """JupyterHub with additional handlers that protect the hub's host if users have separate hosts.

    It also starts without its services if they are not ready, and the configuration can override its handlers and add
    functions that are called at its start.
    """

    handlers: list[Any]
    """JupyterHub's trait, which has no type there."""
    overriding_handlers: List[Any] = List(
        config=True,
        help="Handlers in the form of `extra_handlers` that precede JupyterHub's own for the same paths.",
    )

    start_hooks: List[Any] = List(
        config=True,
        help="Functions that are called with the hub's database when the hub has found the running servers.",
    )

    state_folder = Unicode(
        config=True,
        help="The hub's state folder, for example /srv/farandole. The hub upgrades the state when it starts.",
    )

    def init_db(self) -> None:
        """Upgrade the hub's state, and open the database; ends the hub if a newer version has used the state."""
        if self.state_folder:
            with exit_on_bad_settings():
                upgrade_state(Path(self.state_folder), self.db_url)
        super().init_db()

    def init_handlers(self) -> None:
        """Collect the handlers, and put those that override JupyterHub's first."""
        super().init_handlers()
        self.handlers = [*self.add_url_prefix(self.hub_prefix, [*self.overriding_handlers]), *self.handlers]

    def init_tornado_application(self) -> None:
        """Create the application, and put the rules that protect the hub's host before all other rules."""
        super().init_tornado_application()
        if self.subdomain_host:
            own = self.subdomain_host
            rules = [
                (Misdirected(self.domain, own, self.hub_prefix), OwnHostHandler),
                (ForeignNavigation(own, self.hub_prefix), ConfirmHandler),
                (SpawnOptions(self.hub_prefix), NoOptionsHandler),
            ]
            self.tornado_application.add_handlers(".*", [(*rule, {"own": own}) for rule in rules])

    async def init_spawners(self) -> Any:
        """Find the running servers, and warn about those that are unusable because the hub's address has changed."""
        checked = await super().init_spawners()
        if moved := servers_of_another_address(self.db, self.users):
            self.log.warning(
                "Stop these servers at %s/hub/admin, and start them again. The hub had another address when they were "
                "started, so their users cannot use them: %s",
                self.subdomain_host,
                ", ".join(moved),
            )
        for hook in self.start_hooks:
            hook(self.db)
        return checked

    async def start_service(self, service_name: str, service: Any, ssl_context: ssl.SSLContext | None = None) -> bool:
        """Start a service, and continue without a service of ours that fails or takes longer than its timeout.

        JupyterHub would exit, and with it all requests, although it later starts a service again that has exited.
        """
        ready: bool = await super().start_service(service_name, service, ssl_context)
        if not ready and service.managed:
            self.log.error("The hub continues without the service %r until the service is ready", service_name)
        return ready or service.managed


def servers_of_another_address(db: Any, users: Any) -> list[str]:
    """Return the running servers, as ``USER/NAME``, whose login redirects to an earlier address of their user."""
    running = db.query(orm.Spawner).filter(orm.Spawner.server_id.is_not(None), orm.Spawner.oauth_client.has())
    return [
        f"{found.user.name}/{found.name}"
        for found in running
        if not found.oauth_client.redirect_uri.startswith(users[found.user].url)
    ]


class Misdirected(Matcher):
    """Matches requests that must not reach the hub's own handlers.

    - Requests for another host. There are two exceptions: programs may request the `INTERNAL` paths directly at the
      hub's port, and monitors may request the health check by IP address. The health check needs no login and sets no
      cookie.
    - Requests that change something and come from a page of another origin, according to the ``Origin`` header. Such a
      page may have set the hub's cookies, because a host can set cookies for its parent domains. Requests with a token
      are allowed, because browsers add passwords of HTTP authentication to a request automatically, but never tokens.
    """

    def __init__(self, domain: str, own: str, prefix: str) -> None:
        self._domain = domain
        self._own = own
        self._health = f"{prefix}health"
        self._internal = tuple(f"{prefix}{path}" for path in INTERNAL)

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Return the arguments for the handler, or None if the request is for the hub."""
        if request.host_name != self._domain:
            return None if self._is_for_programs(request) else {}
        if request.method in SAFE or auth_header_pat.match(request.headers.get("Authorization", "")):
            return None
        return None if self._is_own(request.headers) else {}

    def _is_for_programs(self, request: HTTPServerRequest) -> bool:
        if request.method in SAFE and request.path == self._health:
            return True
        return FORWARDED not in request.headers and f"{request.path}/".startswith(self._internal)

    def _is_own(self, headers: HTTPHeaders) -> bool:
        origin = headers.get("Origin", self._own)
        # The hub's own pages send "null" if a server in front of the hub sets `Referrer-Policy: no-referrer`.
        hidden = origin == "null" and headers.get("Sec-Fetch-Site") == "same-origin"
        return hidden or origin == self._own


class OwnHostHandler(RequestHandler):
    """Redirects GET requests to the same path on the hub's own host, and refuses all requests that change something."""

    def initialize(self, own: str) -> None:
        """Store the URL of the hub's own host."""
        self._own = own

    def check_xsrf_cookie(self) -> None:
        """Skip the XSRF check, because this handler changes nothing."""

    def prepare(self) -> None:
        """Redirect to the hub's own host, or answer 421, or 503 if the request is for a server that does not run."""
        if self._own.startswith("https:"):
            # Do not include subdomains, because any name may lead here, and the hosts below it may belong to others.
            self.set_header("Strict-Transport-Security", HSTS)
        if self.request.method in SAFE and (self.request.uri or "").startswith("/"):
            self.redirect(f"{self._own}{self.request.uri}")
            return
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("X-Content-Type-Options", "nosniff")
        if self.request.host_name != urlsplit(self._own).hostname and self.request.path.startswith(SERVERS):
            # The proxy passes on requests for running servers to these servers.
            self.set_status(HTTPStatus.SERVICE_UNAVAILABLE)
            self.finish(f"No server runs at this address. Its user can start it at {self._own}/hub/home\n")
            return
        self.set_status(MISDIRECTED)
        page = self.request.headers.get("Origin", self.request.host)
        self.finish(f"This hub is at {self._own} and accepts no such request at or from {page}. Open {self._own}\n")
