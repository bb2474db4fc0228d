"""Logins: with accounts of the hub, or with accounts of an OAuth provider."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bcrypt
import nativeauthenticator
from jupyterhub import orm
from nativeauthenticator import NativeAuthenticator
from nativeauthenticator.orm import UserInfo
from tornado.web import HTTPError
from traitlets import Integer, Unicode

from spawner_config.access.guards import GuardedAuthenticator
from spawner_config.access.oauth import configure_oauth
from spawner_config.access.pages import PAGES
from spawner_config.access.passwords import PasswordHasher
from spawner_config.access.required import LOGINS, SIGNUPS, required
from spawner_config.access.secret_rules import MAKE_PASSWORD, PASSWORD_BYTES, check_admin_password
from spawner_config.access.sessions import is_of_server
from spawner_config.access.sign_ups import SignUps
from spawner_config.access.slugs import check_slug
from spawner_config.origins.hosts import same_host
from spawner_config.settings import SettingsError, needed

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATES = Path(__file__).with_name("templates")
PASSWORD_LENGTH = 10
FAILED_LOGINS = 5
LOCKOUT_SECONDS = 600
SIGNUP_LINK = '<a href="/hub/signup">New here? Make an account.</a>'

USER_NAME = r"\w[\w.@+-]{0,63}\Z"
"""A user name begins with a letter or digit of any language, and contains no special characters of URLs or HTML."""


class AccountAuthenticator(GuardedAuthenticator, NativeAuthenticator):  # type: ignore[misc]
    """A NativeAuthenticator that takes its first administrator from the settings and withstands floods of logins."""

    first_admin = Unicode(help="The administrator who exists from the first start on.", config=True)
    first_password = Unicode(
        help="The first administrator's first password; changed at /hub/change-password.", config=True
    )
    signups_per_hour = Integer(1000, min=1, help="How many accounts may be made within an hour.", config=True)
    most_pending = Integer(1000, min=1, help="How many accounts may wait for approval.", config=True)
    signups_per_address = Integer(
        300,
        min=1,
        help="How many accounts may be made from one address within an hour, and how many of one address may wait for "
        "approval. A whole class may share an address, for example behind a router.",
        config=True,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create the first administrator's account if it is missing; an existing account keeps its password."""
        super().__init__(*args, **kwargs)
        self.hasher = PasswordHasher()
        self.sign_ups = SignUps()
        if not self.user_exists(self.first_admin):
            self._make_first_admin()

    def get_handlers(self, _app: Any) -> list[Any]:
        """Return the hub's own versions of the NativeAuthenticator pages that the hub uses."""
        return PAGES

    async def refresh_user(self, user: Any, handler: Any = None, **options: Any) -> bool:
        """Return whether a user may stay logged in or get a server; JupyterHub asks regularly and before each start.

        A user without an account was added by an administrator, or logged in before FARANDOLE_LOGIN changed:

        - Such users cannot act themselves, neither with a cookie nor with a token.
        - Others can act for them, for example the administrator who starts their server.
        - Their servers can act, with the tokens that the hub gave to the servers.

        JupyterHub caches a positive answer for `auth_refresh_age` (five minutes), whoever made the request. While a
        server of such a user is running, an old cookie of the user is therefore valid too. Stop all servers before you
        change FARANDOLE_LOGIN.

        Raises HTTPError 403 if the name's slug belongs to another user.
        """
        await super().refresh_user(user, handler, **options)
        if account := self.get_user(user.name):
            return bool(account.is_authorized)
        return handler.current_user is not user or is_of_server(handler.get_token(), user)

    async def authenticate(self, _handler: Any, data: dict[str, str]) -> str | None:
        """Return the user's name, or None if name or password is wrong; raises HTTPError 403 for any other refusal."""
        account = await self.find_account(data["username"], data["password"])
        if account is None:
            return None
        if not account.is_authorized:
            raise HTTPError(403, "The administrator has not approved this account yet.")
        return str(account.username)

    async def find_account(self, username: str, password: str) -> UserInfo | None:
        """Return the account with this name and password, or None if one of them is wrong.

        This method does not reveal which accounts exist. It takes equally long for unknown names, and failed logins
        lock unknown names too. Raises HTTPError 403 while a name is locked, and 429 while there are too many logins.
        """
        name = self.normalize_username(username)
        if not self.validate_username(name) or len(password.encode()) > PASSWORD_BYTES:
            return None
        self._check_lock(name)
        self.hasher.check_room()
        # Count the attempt before the comparison; otherwise many attempts at the same time would all be allowed.
        self.add_login_attempt(name)
        account = self.get_user(name)
        hashed = account.password if account else None
        right = await self.hasher.matches(password, hashed)
        # Look the account up again: the password may have changed during the comparison, which ends all logins.
        account = self.get_user(name)
        if not right or account is None or account.password != hashed:
            self._check_lock(name)
            return None
        self.successful_login(name)
        return account

    def _check_lock(self, name: str) -> None:
        if self.is_blocked(name):
            minutes = self.seconds_before_next_try // 60
            raise HTTPError(403, f"Too many failed logins: this account is locked for {minutes} minutes.")

    def is_blocked(self, username: str) -> bool:
        """Return whether failed logins lock the account. This also deletes old failures."""
        return not self.can_try_to_login_again(username) and super().is_blocked(username)

    def can_try_to_login_again(self, username: str) -> bool:
        """Return whether no login has failed recently. This also deletes older failures."""
        # The library's own method never deletes failures, and ignores the days of a time difference.
        attempts = self.login_attempts.get(username)
        if attempts and not self._is_old(attempts):
            return False
        self.login_attempts.pop(username, None)
        return True

    def add_login_attempt(self, username: str) -> None:
        """Count a failed login and delete old failures, because attempts with made-up names also take up memory."""
        attempts = self.login_attempts.pop(username, {"count": 0})
        # Append the entry, so that the dictionary stays sorted by time.
        self.login_attempts[username] = {"count": attempts["count"] + 1, "time": datetime.now(UTC)}
        while self._is_old(self.login_attempts[oldest := next(iter(self.login_attempts))]):
            del self.login_attempts[oldest]

    def _is_old(self, attempts: dict[str, Any]) -> bool:
        return bool((datetime.now(UTC) - attempts["time"]).total_seconds() > self.seconds_before_next_try)

    async def create_user(self, username: str, password: str, *, address: str = "") -> UserInfo | None:
        """Return the new account of a user who signs up from ``address``, or None if name or password is not accepted.

        These names are refused:

        - names of administrators, because administrators get their rights by name;
        - names of hub users without an account, unless an administrator has to approve the new account;
        - names whose host belongs to another account.

        Raises HTTPError 403 if the name's slug belongs to another user, 429 if there are too many new accounts.
        """
        name = self.normalize_username(username)
        if not self._accepts(name, password):
            return None
        self._check_signups(address)
        hashed = await self.hasher.hash(password)
        # Check again, because another request may have taken the name or the last free account in the meantime.
        if not self._accepts(name, password):
            return None
        self._check_signups(address)
        account = UserInfo(username=name, password=hashed, is_authorized=self.open_signup)
        self.db.add(account)
        self.db.commit()
        self.sign_ups.add(name, address)
        return account

    async def change_password(self, username: str, new_password: str) -> bool:
        """Change the password of an account; returns whether the account exists and the password is accepted."""
        account = self.get_user(username)
        if account is None or not self.is_password_strong(new_password):
            return False
        account.password = await self.hasher.hash(new_password)
        self.db.commit()
        return True

    def _accepts(self, name: str, password: str) -> bool:
        accepted = self.enable_signup and self.validate_username(name) and self.is_password_strong(password)
        if not accepted or name in self.admin_users or self.user_exists(name) or self._would_inherit(name):
            return False
        check_slug(self.db, name)
        return not self._has_others_host(name)

    def _check_signups(self, address: str) -> None:
        """Raise HTTPError 429 if too many accounts were created recently, or too many are waiting for approval."""
        pending = self._pending()
        if self.sign_ups.count(address) >= self.signups_per_address or self.sign_ups.count() >= self.signups_per_hour:
            raise HTTPError(429, "Too many accounts were made within the last hour. Try again later.")
        if self.sign_ups.pending(address, pending) >= self.signups_per_address or len(pending) >= self.most_pending:
            raise HTTPError(
                429,
                "Too many accounts wait for approval. Ask the administrator to approve or discard accounts at "
                "/hub/authorize.",
            )

    def _pending(self) -> set[str]:
        """Return the accounts that are waiting for approval. Locked-out users have logged in, so they do not count."""
        waiting = self.db.query(UserInfo.username).outerjoin(orm.User, orm.User.name == UserInfo.username)
        return {name for (name,) in waiting.filter(UserInfo.is_authorized.is_(False), orm.User.id.is_(None))}

    def _would_inherit(self, name: str) -> bool:
        """Return, and log, whether a new account would get the rights of an existing user without any approval."""
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


def configure_logins(c: Any, environ: Mapping[str, str]) -> None:
    """Set up the logins of FARANDOLE_LOGIN; raises `SettingsError`."""
    kind = _choice(environ, "FARANDOLE_LOGIN", LOGINS)
    given = {key: needed(environ, key, what) for key, what in required(kind).items()}
    c.Authenticator.admin_users = {given["FARANDOLE_ADMIN"]}
    # Without these two settings, the hub would accept a locked-out user's token and start servers for that user.
    c.Authenticator.auth_refresh_strict = c.Authenticator.refresh_pre_spawn = True
    if kind == "native":
        _configure_native(c, given, SIGNUPS[_choice(environ, "FARANDOLE_SIGNUP", tuple(SIGNUPS))])
    else:
        configure_oauth(c, given, kind)


def _choice(environ: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str:
    """Return the value of a variable, by default the first of ``choices``; raises `SettingsError` for other values."""
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
