"""The page on which the administrator approves, locks out and discards accounts.

NativeAuthenticator's own page changes accounts through links, so an image in any web page that the administrator opens
could change an account. This page uses forms instead, because the hub accepts a POST request only with the XSRF token
that it issued together with the page.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from jupyterhub import orm
from jupyterhub.handlers import BaseHandler
from jupyterhub.scopes import needs_scope
from nativeauthenticator.orm import UserInfo
from tornado.web import HTTPError

from spawner_config.access.invitations.links import end_link, valid_until
from spawner_config.access.sessions import end_sessions
from spawner_config.lifecycle.cascade_stop import stop_servers

if TYPE_CHECKING:
    from typing import Any

STOP_SECONDS = 30.0


class AccountsHandler(BaseHandler):  # type: ignore[misc]
    """``GET /hub/authorize`` shows all accounts; ``POST`` with ``username`` and ``action`` changes one account."""

    @needs_scope("admin:users")  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        """Show all accounts, with those that are waiting for approval first."""
        accounts = self.db.query(UserInfo).order_by(UserInfo.is_authorized, UserInfo.username).all()
        names = {account.username for account in accounts}
        added = [user for user in self.db.query(orm.User).order_by(orm.User.name) if user.name not in names]
        links = valid_until(self.db)
        self.finish(await self.render_template("accounts.html", accounts=accounts, added=added, links=links))

    @needs_scope("admin:users")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Change an account; answer 404 if it does not exist, or 400 with the reason if the action is refused."""
        name, action = self.get_body_argument("username", strip=False), self.get_body_argument("action")
        account = self.authenticator.get_user(name)
        if account is None:
            raise HTTPError(404, "There is no account %r.", name)
        name, by = account.username, self.current_user.name
        await change_account(self.authenticator, self.users, account, action, by=by)
        self.log.info("%s: %s the account %r", by, action, name)
        self.redirect(f"{self.hub.base_url}authorize")


async def change_account(authenticator: Any, users: Any, account: UserInfo, action: str, *, by: str) -> None:
    """Approve an account, lock it out, or discard one that is not approved.

    ``users`` contains the hub's users; an account has no user before its first login. ``by`` is the name of the
    administrator who requested the change. Raises HTTPError 400 if the action is not allowed, and HTTPError 503 if a
    server of a locked-out user does not stop.
    """
    if account.username == by and action != "approve":
        raise HTTPError(400, "You cannot %s your own account. Another administrator can.", action)
    user = users.get(account.username)
    if action == "discard" and not account.is_authorized:
        await _discard(authenticator, users, account, user)
        return
    if action not in {"approve", "lock-out"}:
        raise HTTPError(400, "%r is not possible for the account %r.", action, account.username)
    account.is_authorized = action == "approve"
    authenticator.db.commit()
    if action == "lock-out":
        end_link(authenticator.db, account.username)
        if user is not None:
            await _end_access(authenticator.db, user)


async def _end_access(db: Any, user: Any) -> None:
    """Revoke the user's tokens and logins, and stop all servers; raise HTTPError 503 if a server does not stop."""
    end_sessions(db, user)
    running = await stop_servers(user, STOP_SECONDS)
    if running:
        raise HTTPError(
            503,
            "%r is locked out, but these servers have not stopped yet: %s. See /hub/admin and the hub's log.",
            user.name,
            ", ".join(name or "notebook" for name in running),
        )


async def _discard(authenticator: Any, users: Any, account: UserInfo, user: Any) -> None:
    """Delete the account and its hub user, so that a later user with the same name inherits no tokens or groups.

    Raises HTTPError 400 if a server of the user is still running or stopping.
    """
    if user is None:
        authenticator.delete_user(SimpleNamespace(name=account.username))
        return
    if any(spawner.active for spawner in user.spawners.values()):
        raise HTTPError(
            400,
            "Servers of %r are still running or stopping. Stop them at /hub/admin, then discard the account.",
            user.name,
        )
    authenticator.delete_user(user)
    await user.delete_spawners()
    users.delete(user)
