"""The pages on which administrators create accounts and get one-time links. The links are shown only once."""

from __future__ import annotations

import asyncio
import base64
import csv
import io
import time
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from jupyterhub import orm
from jupyterhub.handlers import BaseHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.utils import get_browser_protocol
from tornado.web import HTTPError

from spawner_config.access.invitations.links import DAY, as_text
from spawner_config.access.invitations.name_list import ListError, decode, read_names

if TYPE_CHECKING:
    from spawner_config.access.invitations.name_list import Entry

FORMULA = ("=", "+", "-", "@")
"""The characters with which a formula begins in a spreadsheet."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the result: a link, or the reason why there is none."""

    username: str
    link: str = ""
    refusal: str = ""


class InvitePage(BaseHandler):  # type: ignore[misc]
    """``POST /hub/invite`` with ``username`` shows a new link for an account, or for a user who has no account yet."""

    @needs_scope("admin:users")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Show the link; answer 404 if there is no such user, and 400 if the user may not get a link."""
        name = self.authenticator.normalize_username(self.get_body_argument("username", strip=False))
        account = self.authenticator.get_user(name)
        if account is None:
            if orm.User.find(self.db, name) is None:
                raise HTTPError(404, "There is no user %r.", name)
            if refusal := self.authenticator.refusal(name):
                raise HTTPError(400, "The name %r %s.", name, refusal)
            self.authenticator.add_account(name)
        elif not account.is_authorized:
            raise HTTPError(400, "The account %r is not approved. Approve it first.", name)
        link = link_to(self, self.authenticator.make_link(name))
        self.log.info("%s: made a link for a password of %r", self.current_user.name, name)
        await show_links(self, [Row(username=name, link=link)])


class ImportPage(BaseHandler):  # type: ignore[misc]
    """``POST /hub/import-accounts`` creates an account for each name in the file ``list`` or in the field ``names``.

    An account that still has no password gets a new link, because the administrator may have lost the first one.
    """

    @needs_scope("admin:users")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Show a link for each good name and the reason for each name that is refused; 400 if the list is invalid."""
        try:
            entries = read_names(self._text())
        except ListError as exc:
            raise HTTPError(400, f"No account was created. {exc}") from exc
        by, rows = self.current_user.name, await self._create(entries)
        self.log.info("%s: made links for passwords of %s", by, [row.username for row in rows if row.link])
        await show_links(self, rows)

    def _text(self) -> str:
        files = self.request.files.get("list", [])
        body = files[0]["body"] if files else b""
        return decode(body) if body else str(self.get_body_argument("names", "", strip=False))

    async def _create(self, entries: list[Entry]) -> list[Row]:
        first: dict[str, int] = {}
        rows = []
        for entry in entries:
            name = self.authenticator.normalize_username(entry.name)
            refusal = f"is in line {first[name]} already" if name in first else self._refusal(name)
            first.setdefault(name, entry.line)
            if refusal:
                rows.append(Row(username=entry.name, refusal=f"Line {entry.line}: the name {entry.name!r} {refusal}."))
            else:
                if not self.authenticator.user_exists(name):
                    self.authenticator.add_account(name)
                rows.append(Row(username=name, link=link_to(self, self.authenticator.make_link(name))))
            # Each name is compared with all users. Let the hub answer other requests in between.
            await asyncio.sleep(0)
        return rows

    def _refusal(self, name: str) -> str | None:
        """Return why a list gives no link for this name. It must not give anybody the rights of an existing user."""
        has_user = name in self.authenticator.admin_users or orm.User.find(self.db, name) is not None
        if not has_user and self.authenticator.awaits_password(name):
            return None
        refusal: str | None = self.authenticator.refusal(name)
        if refusal is None and has_user:
            return "belongs to a user without an account; if you want one, make it with the button beside that user"
        return refusal


def link_to(handler: Any, secret: str) -> str:
    """Return the address of the page on which the link's user sets a password.

    The secret is in the fragment, which browsers do not send, so that it appears in no log of a server or proxy.
    """
    request = handler.request
    origin = handler.settings.get("subdomain_host") or f"{get_browser_protocol(request)}://{request.host}"
    return f"{origin}{handler.hub.base_url}set-password#{secret}"


async def show_links(handler: Any, rows: list[Row]) -> None:
    """Show the links, and offer them as a CSV file. Browsers must not store the page."""
    handler.set_header("Cache-Control", "no-store")
    until = as_text(time.time() + handler.authenticator.link_days * DAY)
    made = [row for row in rows if row.link]
    refused = [row for row in rows if row.refusal]
    shown = {"made": made, "refused": refused, "until": until, "csv": as_csv(rows)}
    handler.finish(await handler.render_template("links.html", **shown))


def as_csv(rows: list[Row]) -> str:
    """Return the rows as a CSV file in Base64. Spreadsheets must not run a name as a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["username", "link", "refused"])
    for row in rows:
        writer.writerow([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in astuple(row)])
    return base64.b64encode(text.getvalue().encode()).decode()
