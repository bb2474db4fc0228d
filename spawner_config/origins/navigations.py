"""Intercepts navigations from other origins that would change something, because browsers send cookies with them.

Browsers do not send ``Origin`` with navigations. The ``Sec-Fetch-Site`` header shows whether a page of another origin
started the navigation, even after redirects. Over plain HTTP, browsers send only ``Referer``, which pages can suppress.
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
"""The query parameters that JupyterHub's own pages add to the spawn page. JupyterHub treats all other parameters as
server options."""
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Continue?</title>
<h1>Continue?</h1>
<p>A page of another address, for example of a user's server, asked the hub to {what}. If you wanted this:</p>
<p><a href="{address}">Continue</a></p>
"""


def is_foreign(headers: Mapping[str, str], own: str) -> bool:
    """Return whether a page whose origin is not ``own`` started a navigation; False if no header shows this."""
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in {"same-origin", "none"}
    referer = headers.get("Referer")
    return referer is not None and not f"{referer}/".startswith(f"{own}/")


class ForeignNavigation(Matcher):
    """Matches GET requests that come from pages of another origin and would change something.

    - The logout page ends the session.
    - The spawn page of a named server creates the server's record, and the number of records is limited.

    The spawn page of the default server only shows a form (see `SpawnOptions`). It must be reachable from other
    origins, because logins with a provider and ``user-redirect`` links lead to it.
    """

    def __init__(self, own: str, prefix: str) -> None:
        self._own = own
        self._logout = f"{prefix}logout"
        self._spawn = f"{prefix}spawn/"

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Return the arguments for `ConfirmHandler`, or None if the hub may answer."""
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
    """A page that asks the user to confirm the navigation, with a link to the same path without the query."""

    def initialize(self, own: str) -> None:
        """Store the URL of the hub's own host."""
        self._own = own

    def get(self, what: str) -> None:
        """Show the page, and forbid frames and scripts, because only the user may follow the link."""
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; form-action 'none'")
        self.set_header("X-Content-Type-Options", "nosniff")
        # For browsers without Sec-Fetch-Site, the Referer header must show that the link was followed on this page.
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.finish(PAGE.format(what=what, address=escape(f"{self._own}{self.request.path}")))

    head = get


class SpawnOptions(Matcher):
    """Matches requests for the spawn page with server options in the query.

    JupyterHub would start the server immediately. A page of another origin could send a user's browser to such a URL,
    and for a logged-out user the start would happen after the next login.
    """

    def __init__(self, prefix: str) -> None:
        self._spawn = f"{prefix}spawn"

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Return the arguments for `NoOptionsHandler`, or None if the query has no options."""
        if request.method not in SAFE or not f"{request.path}/".startswith(f"{self._spawn}/"):
            return None
        return {} if request.query_arguments.keys() - SPAWN_PARAMETERS else None


class NoOptionsHandler(RequestHandler):
    """Redirects to the spawn page without server options."""

    def initialize(self, own: str) -> None:
        """Store the URL of the hub's own host."""
        self._own = own

    def get(self) -> None:
        """Redirect to the same page with only those parameters that are not server options."""
        given = self.request.query_arguments
        kept = urlencode({name: given[name] for name in SPAWN_PARAMETERS if name in given}, doseq=True)
        self.redirect(f"{self._own}{self.request.path}{'?' if kept else ''}{kept}")

    head = get
