"""The page on which the administrator approves, locks out and discards accounts.

NativeAuthenticator's own page does so by links: a picture in any web page that the administrator opens could follow
them. Here only the page's own form can, for the hub asks each POST for the token that it gave to that page.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from jupyterhub.handlers import BaseHandler
from jupyterhub.scopes import needs_scope
from nativeauthenticator.orm import UserInfo
from tornado.web import HTTPError

if TYPE_CHECKING:
    from typing import Any


class AccountsHandler(BaseHandler):  # type: ignore[misc]
    """``GET /hub/authorize`` shows all accounts; ``POST`` with ``username`` and ``action`` changes one."""

    @needs_scope("admin:users")  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        """Show the accounts, those that wait for approval first."""
        accounts = self.db.query(UserInfo).order_by(UserInfo.is_authorized, UserInfo.username).all()
        self.finish(await self.render_template("accounts.html", accounts=accounts))

    @needs_scope("admin:users")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Change one account; answers 404 where there is none, 400 for an unknown action."""
        name, action = self.get_body_argument("username", strip=False), self.get_body_argument("action")
        account = self.authenticator.get_user(name)
        if account is None:
            raise HTTPError(404, "There is no account %r.", name)
        change_account(self.authenticator, account, action)
        self.log.info("%s: %s the account %r", self.current_user.name, action, account.username)
        self.redirect(f"{self.hub.base_url}authorize")


def change_account(authenticator: Any, account: UserInfo, action: str) -> None:
    """Approve an account, lock it out, or discard one that is not approved; raises HTTPError 400."""
    if action == "discard" and not account.is_authorized:
        authenticator.delete_user(SimpleNamespace(name=account.username))
        return
    if action not in {"approve", "lock-out"}:
        raise HTTPError(400, "%r cannot be done with the account %r.", action, account.username)
    account.is_authorized = action == "approve"
    authenticator.db.commit()
