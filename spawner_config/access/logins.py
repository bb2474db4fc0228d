"""Logins: with accounts of the hub, or with accounts of an OAuth provider."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bcrypt
import nativeauthenticator
from jupyterhub import orm
from nativeauthenticator import NativeAuthenticator
from nativeauthenticator.orm import UserInfo
from tornado.web import HTTPError
from traitlets import Unicode

from spawner_config.access.accounts import AccountsHandler
from spawner_config.access.oauth import configure_oauth
from spawner_config.access.required import LOGINS, SIGNUPS, required
from spawner_config.access.secret_rules import MAKE_PASSWORD, PASSWORD_BYTES, check_admin_password
from spawner_config.origins.hosts import same_host
from spawner_config.settings import SettingsError, needed

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATES = Path(__file__).with_name("templates")
PASSWORD_LENGTH = 10
FAILED_LOGINS = 5
LOCKOUT_SECONDS = 600
PAGES = {"/signup", "/change-password", "/change-password/([^/]+)"}
"""The pages of the library that the hub uses. JupyterHub 6 cannot show its login page; its other pages act on a GET."""
SIGNUP_LINK = '<a href="/hub/signup">New here? Make an account.</a>'

SERVER_NOTE = "Server at "
"""The beginning of the notes that the hub gives to the tokens of servers."""
USER_NAME = r"\w[\w.@+-]{0,63}\Z"
"""It begins with a letter or digit of any language; no character has a meaning in a URL or in HTML."""


class AccountAuthenticator(NativeAuthenticator):  # type: ignore[misc]
    """A NativeAuthenticator whose first administrator comes from the configuration."""

    first_admin = Unicode(help="The administrator who exists from the first start on.", config=True)
    first_password = Unicode(
        help="The first administrator's first password; changed at /hub/change-password.", config=True
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create the first administrator's account if it is missing; an existing account keeps its password."""
        super().__init__(*args, **kwargs)
        if not self.user_exists(self.first_admin):
            self._make_first_admin()

    def get_handlers(self, app: Any) -> list[Any]:
        """Return those pages of the library that the hub uses, and its own page of accounts."""
        pages = [(path, handler) for path, handler in super().get_handlers(app) if path in PAGES]
        return [*pages, ("/authorize", AccountsHandler)]

    async def refresh_user(self, user: Any, handler: Any) -> bool:
        """Return whether a user may stay logged in or get a server; JupyterHub asks regularly and before each start.

        A user without an account was added by an administrator, or logged in before FARANDOLE_LOGIN changed:

        - Such users cannot act themselves, neither with a cookie nor with a token.
        - Others can act for them, for example the administrator who starts their server.
        - Their servers can act, with the tokens that the hub gave to the servers.

        JupyterHub caches a positive answer for `auth_refresh_age` (five minutes), for all who ask: while a server of
        such a user runs, an old cookie is valid too. Stop all servers before you change FARANDOLE_LOGIN.
        """
        if account := self.get_user(user.name):
            return bool(account.is_authorized)
        return handler.current_user is not user or _is_of_server(handler.get_token(), user)

    async def authenticate(self, handler: Any, data: dict[str, str]) -> Any:
        """Return the user's name, None if name or password is wrong; raises HTTPError 403 for any other reason."""
        name = self.normalize_username(data["username"])
        if not self.is_blocked(name) and self._waits(name, data["password"]):
            # Not a failed login: the account must not be locked when it is approved.
            self.successful_login(name)
            raise HTTPError(403, "The administrator has not approved this account yet.")
        user = await super().authenticate(handler, data)
        if user is None and self.is_blocked(name):
            minutes = self.seconds_before_next_try // 60
            raise HTTPError(403, f"Too many failed logins: this account is locked for {minutes} minutes.")
        return user

    def _waits(self, name: str, password: str) -> bool:
        account = self.get_user(name)
        return bool(account and not account.is_authorized and account.is_valid_password(password))

    def is_blocked(self, username: str) -> bool:
        """Return whether failed logins lock the account; old failures are deleted."""
        return not self.can_try_to_login_again(username) and super().is_blocked(username)

    def can_try_to_login_again(self, username: str) -> bool:
        """Return whether no login failed recently; older failures are deleted."""
        # The library's own method never deletes failures, and ignores the days of a time difference.
        attempts = self.login_attempts.get(username)
        if attempts:
            last = attempts["time"]
            if (datetime.now(last.tzinfo) - last).total_seconds() <= self.seconds_before_next_try:
                return False
            del self.login_attempts[username]
        return True

    def create_user(self, username: str, password: str, **fields: Any) -> Any:
        """Return the new account of a user who signs up, None if name or password is not accepted.

        Refused names are those of administrators, who get their rights by name, those of users of the hub without an
        account, unless an administrator has to approve the new account, and those with the host of another account.
        """
        name = self.normalize_username(username)
        if name in self.admin_users or self._would_inherit(name) or self._has_others_host(name):
            return None
        return super().create_user(username, password, **fields)

    def _would_inherit(self, name: str) -> bool:
        """Return whether a new account would get the rights of an existing user without approval; logs this case."""
        user = None if self.user_exists(name) else orm.User.find(self.db, name)
        if user is None or not (self.open_signup or user.admin):
            return False
        self.log.warning(
            "Nobody can sign up as %r: the hub has a user of that name, whose tokens and groups the account would get. "
            "Delete that user at /hub/admin; or make sure there that the user is no administrator, and let the person "
            "sign up with FARANDOLE_SIGNUP=approval.",
            name,
        )
        return True

    def _has_others_host(self, name: str) -> bool:
        names = [name for column in (UserInfo.username, orm.User.name) for (name,) in self.db.query(column)]
        return same_host(name, names) is not None

    def is_password_strong(self, password: str) -> bool:
        """Return whether a password may be used; a password that bcrypt would refuse is not accepted."""
        return len(password.encode()) <= PASSWORD_BYTES and super().is_password_strong(password)

    def _make_first_admin(self) -> None:
        if not self.is_password_strong(self.first_password):
            raise SettingsError(
                f"FARANDOLE_ADMIN_PASSWORD is too weak: it is a password that many people use. {MAKE_PASSWORD}"
            )
        password = bcrypt.hashpw(self.first_password.encode(), bcrypt.gensalt())
        name = self.normalize_username(self.first_admin)
        self.db.add(UserInfo(username=name, password=password, is_authorized=True))
        self.db.commit()


def _is_of_server(token: orm.APIToken | None, user: Any) -> bool:
    """Return whether a token belongs to one of the user's servers; JupyterHub marks such tokens only with a note."""
    return token is not None and token.user_id == user.id and (token.note or "").startswith(SERVER_NOTE)


def configure_logins(c: Any, environ: Mapping[str, str]) -> None:
    """Set up the logins of FARANDOLE_LOGIN; raises `SettingsError`."""
    kind = _choice(environ, "FARANDOLE_LOGIN", LOGINS)
    given = {key: needed(environ, key, what) for key, what in required(kind).items()}
    c.Authenticator.admin_users = {given["FARANDOLE_ADMIN"]}
    # Without these two, the hub would accept the token of a locked-out user, and start servers for it.
    c.Authenticator.auth_refresh_strict = c.Authenticator.refresh_pre_spawn = True
    if kind == "native":
        _configure_native(c, given, SIGNUPS[_choice(environ, "FARANDOLE_SIGNUP", tuple(SIGNUPS))])
    else:
        configure_oauth(c, given, kind)


def _choice(environ: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str:
    """Return the value of a variable, by default the first of its choices; raises `SettingsError` for another one."""
    value = environ.get(key) or choices[0]
    if value not in choices:
        raise SettingsError(f"{key} is {value!r}. It must be one of: {', '.join(choices)}.")
    return value


def _configure_native(c: Any, given: Mapping[str, str], signup: tuple[bool, bool]) -> None:
    c.JupyterHub.authenticator_class = AccountAuthenticator
    c.JupyterHub.template_paths = [str(TEMPLATES), str(Path(nativeauthenticator.__file__).parent / "templates")]
    c.AccountAuthenticator.first_admin = given["FARANDOLE_ADMIN"]
    c.AccountAuthenticator.first_password = given["FARANDOLE_ADMIN_PASSWORD"]
    check_admin_password(given["FARANDOLE_ADMIN_PASSWORD"])
    c.NativeAuthenticator.enable_signup, c.NativeAuthenticator.open_signup = signup
    if c.NativeAuthenticator.enable_signup:
        c.JupyterHub.template_vars = {"announcement_login": SIGNUP_LINK}
    c.NativeAuthenticator.minimum_password_length = PASSWORD_LENGTH
    c.NativeAuthenticator.check_common_password = True
    c.NativeAuthenticator.allowed_failed_logins = FAILED_LOGINS
    c.NativeAuthenticator.seconds_before_next_try = LOCKOUT_SECONDS
    c.Authenticator.username_pattern = USER_NAME
    # The approval of an account decides who may log in; there is no second list.
    c.Authenticator.allow_all = True
