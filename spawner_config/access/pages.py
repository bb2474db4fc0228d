"""The account pages: sign-up, password changes, and the administrator's list of accounts.

They replace the pages of NativeAuthenticator, which hash passwords on the event loop, change accounts on GET requests,
and do not end sessions after a password change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyterhub.handlers import BaseHandler
from jupyterhub.scopes import needs_scope
from nativeauthenticator.handlers import ChangePasswordAdminHandler, ChangePasswordHandler, SignUpHandler
from tornado import web

from spawner_config.access.accounts import AccountsHandler
from spawner_config.access.invitations.pages import ImportPage, InvitePage
from spawner_config.access.sessions import end_sessions
from spawner_config.access.sign_ups import client_address

if TYPE_CHECKING:
    from typing import Any

MISMATCH = "The new password didn't match the confirmation. Please try again."
WRONG = "Your current password was incorrect. Please try again."
REFUSED = "Something went wrong! The password must have {} characters or more, 72 bytes or fewer, and not be common."
ENDED = "All other logins and all tokens of {} have ended; servers continue to run."


class SignUpPage(SignUpHandler):  # type: ignore[misc]
    """``/hub/signup`` creates an account."""

    async def post(self) -> None:
        """Create an account and show the result; raises HTTPError for refused names and for too many accounts."""
        if not self.authenticator.enable_signup:
            raise web.HTTPError(404)
        name, password, confirmation = (
            self.get_body_argument(key, strip=False)
            for key in ("username", "signup_password", "signup_password_confirmation")
        )
        taken = self.authenticator.user_exists(name)
        account = None
        if password == confirmation and not taken:
            address = await client_address(self.request, self.authenticator.tls_servers)
            account = await self.authenticator.create_user(name, password, address=address)
        alert, message = self.get_result_message(account, True, taken, password == confirmation, False)
        self.finish(await self.render_template("signup.html", alert=alert, result_message=message))


class ChangePasswordPage(ChangePasswordHandler):  # type: ignore[misc]
    """``/hub/change-password`` changes the password of the logged-in user."""

    @web.authenticated
    async def post(self) -> None:
        """Change the password if the current password is right; raises HTTPError 403 after too many wrong passwords."""
        user = self.current_user
        if await self.authenticator.find_account(user.name, self.get_body_argument("old_password", strip=False)):
            fault = await change_password(self, user.name)
        else:
            fault = WRONG
        await show_result(self, "change-password.html", user.name, fault)


class ChangePasswordAdminPage(ChangePasswordAdminHandler):  # type: ignore[misc]
    """``/hub/change-password/NAME`` lets an administrator reset a user's password."""

    @needs_scope("admin:users")  # type: ignore[untyped-decorator]
    async def post(self, user_name: str) -> None:
        """Change the password of an account; answer 404 if the account does not exist."""
        if not self.authenticator.user_exists(user_name):
            raise web.HTTPError(404, "There is no account %r.", user_name)
        await show_result(self, "change-password-admin.html", user_name, await change_password(self, user_name))


class SetPasswordPage(BaseHandler):  # type: ignore[misc]
    """``/hub/set-password`` shows the form in which the user of a one-time link sets a password.

    Showing it does not use up the link, because mail programs open links to check them.
    """

    async def get(self) -> None:
        """Show the form. The link's secret is in the fragment of the address, which the page puts into the form."""
        self.set_header("Cache-Control", "no-store")
        self.finish(await self.render_template("set-password.html"))


class SavePasswordPage(BaseHandler):  # type: ignore[misc]
    """``POST /hub/save-password`` sets the password of the account to which a one-time link belongs.

    The result has another path than the link. Otherwise, a browser would not load the page of another link that is
    opened in the same tab.
    """

    async def post(self) -> None:
        """Set the password and show the user's name; raises HTTPError 403 if the link is not valid."""
        self.set_header("Cache-Control", "no-store")
        secret = self.get_body_argument("secret", strip=False)
        name = self.authenticator.account_of_link(secret).username
        fault = await change_password(self, name, secret=secret)
        self.finish(await self.render_template("set-password.html", fault=fault, secret=secret, user_name=name))


PAGES = [
    ("/signup", SignUpPage),
    ("/authorize", AccountsHandler),
    ("/invite", InvitePage),
    ("/import-accounts", ImportPage),
    ("/set-password", SetPasswordPage),
    ("/save-password", SavePasswordPage),
    ("/change-password", ChangePasswordPage),
    ("/change-password/([^/]+)", ChangePasswordAdminPage),
]
"""The only account pages of the hub. NativeAuthenticator's login page does not work with JupyterHub 6, and its other
pages change accounts on GET requests."""


async def change_password(handler: Any, name: str, *, secret: str | None = None) -> str | None:
    """Set the password from the form and end the account's sessions; return the reason if the password is refused.

    The tokens of running servers remain valid. ``secret`` is that of the account's one-time link if the form belongs to
    one.
    """
    new = handler.get_body_argument("new_password", strip=False)
    if new != handler.get_body_argument("new_password_confirmation", strip=False):
        return MISMATCH
    if not await handler.authenticator.change_password(name, new, secret=secret):
        return REFUSED.format(handler.authenticator.minimum_password_length)
    user = handler.users.get(handler.authenticator.normalize_username(name))
    if user is not None:
        end_sessions(handler.db, user, keep=[spawner for spawner in user.spawners.values() if spawner.active])
        if user is handler.current_user:
            handler.set_login_cookie(user)
    return None


async def show_result(handler: Any, template: str, name: str, fault: str | None) -> None:
    """Show the form again with a message about the result; ``fault`` is None after a successful change."""
    message = fault or f"The password of {name} has been changed successfully. {ENDED.format(name)}"
    alert = "alert-danger" if fault else "alert-success"
    page = await handler.render_template(template, user_name=name, result_message=message, alert=alert)
    handler.finish(page)
