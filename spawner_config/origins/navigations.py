"""Stops navigations from other origins that change something, because browsers send the hub's cookie with them.

Browsers name no ``Origin`` in a navigation. ``Sec-Fetch-Site`` says whether a page of another origin began it, also
after redirects. Over plain HTTP browsers send only ``Referer``, which pages can leave out.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tornado.routing import Matcher
from tornado.web import RequestHandler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tornado.httputil import HTTPServerRequest

SAFE = {"GET", "HEAD"}
SPAWN_PARAMETERS = ("next", "display_name")
"""What JupyterHub's own pages add to the address of the spawn page; it treats all others as options of the server."""
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Continue?</title>
<h1>Continue?</h1>
<p>A page of another address, for example of a user's server, asked the hub to {what}. If you wanted this:</p>
<p><a href="{address}">Continue</a></p>
"""


def is_foreign(headers: Mapping[str, str], own: str) -> bool:
    """Return whether a page of another origin than ``own`` began a navigation; False if nothing says so."""
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in {"same-origin", "none"}
    referer = headers.get("Referer")
    return referer is not None and not f"{referer}/".startswith(f"{own}/")


class ForeignNavigation(Matcher):
    """Matches GET requests from pages of another origin that would change something.

    - The log out page ends the session.
    - The spawn page of a named server creates the server's record, and the number of records is limited.

    The spawn page of a default server only shows a form, see `SpawnOptions`. Logins at a provider and links to
    ``user-redirect`` lead to it from other origins.
    """

    def __init__(self, own: str, prefix: str) -> None:
        self._own = own
        self._logout = f"{prefix}logout"
        self._spawn = f"{prefix}spawn/"

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Return the arguments of `ConfirmHandler`, None if the hub may answer."""
        what = self._what(request.path)
        if what is None or request.method not in SAFE or not is_foreign(request.headers, self._own):
            return None
        return {"path_kwargs": {"what": what}}

    def _what(self, path: str) -> str | None:
        if path == self._logout:
            return "log you out"
        named = path.startswith(self._spawn) and "/" in path.removeprefix(self._spawn)
        return "open the page that starts a server" if named else None


class ConfirmHandler(RequestHandler):
    """A page with a link to the same path, without the query, which the user may follow."""

    def initialize(self, own: str) -> None:
        """Keep the hub's own address."""
        self._own = own

    def get(self, what: str) -> None:
        """Show the page, to the user only: not in a frame, and without scripts."""
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; form-action 'none'")
        self.set_header("X-Content-Type-Options", "nosniff")
        # The link has to name the page that it is on, in browsers without Sec-Fetch-Site.
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.finish(PAGE.format(what=what, address=escape(f"{self._own}{self.request.path}")))

    head = get


class SpawnOptions(Matcher):
    """Matches the spawn page with options in its address.

    JupyterHub would then start the server at once. A page of another origin can send a user's browser to such an
    address, and the start would happen after the next login if the user is logged out.
    """

    def __init__(self, prefix: str) -> None:
        self._spawn = f"{prefix}spawn"

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Return the arguments of `NoOptionsHandler`, None if there are no options."""
        if request.method not in SAFE or not f"{request.path}/".startswith(f"{self._spawn}/"):
            return None
        return {} if request.query_arguments.keys() - SPAWN_PARAMETERS else None


class NoOptionsHandler(RequestHandler):
    """Redirects to the spawn page without options."""

    def initialize(self, own: str) -> None:
        """Keep the hub's own address."""
        self._own = own

    def get(self) -> None:
        """Redirect, and keep only the parameters that are no options."""
        given = self.request.query_arguments
        kept = urlencode({name: given[name] for name in SPAWN_PARAMETERS if name in given}, doseq=True)
        self.redirect(f"{self._own}{self.request.path}{'?' if kept else ''}{kept}")

    head = get
