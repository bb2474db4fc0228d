"""Configures logins, either with accounts that the hub stores or with an OAuth provider."""

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
from traitlets import Integer, List, Unicode

from spawner_config.access.guards import GuardedAuthenticator
from spawner_config.access.invitations.links import create_table, end_link, make_secret, name_of
from spawner_config.access.oauth import configure_oauth
from spawner_config.access.pages import PAGES
from spawner_config.access.passwords import PasswordHasher
from spawner_config.access.required import LOGINS, SIGNUPS, required
from spawner_config.access.secret_rules import MAKE_PASSWORD, PASSWORD_BYTES, check_admin_password
from spawner_config.access.sessions import is_of_server
from spawner_config.access.sign_ups import SignUps
from spawner_config.access.slugs import check_slug, slug_holder
from spawner_config.origins.hosts import same_host
from spawner_config.pages import add_templates, show, template_vars
from spawner_config.settings import SettingsError, needed

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD_LENGTH = 10
FAILED_LOGINS = 5
LOCKOUT_SECONDS = 600
NO_PASSWORD = b""
"""In place of the hash of an account without a password. It matches no password."""
SIGNUP_LINK = '<a href="/hub/signup">New here? Make an account.</a>'

USER_NAME = r"\w[\w.@+-]{0,63}\Z"
"""A user name starts with a letter, digit or underscore of any script and contains no characters that are special in
URLs or HTML."""


class AccountAuthenticator(GuardedAuthenticator, NativeAuthenticator):  # type: ignore[misc]
    """A NativeAuthenticator that creates its first administrator from the settings and limits logins and sign-ups."""

    first_admin = Unicode(help="The administrator whose account is created at the first start.", config=True)
    first_password = Unicode(
        help="The first administrator's initial password, which can be changed at /hub/change-password.", config=True
    )
    signups_per_hour = Integer(1000, min=1, help="How many accounts may be created within an hour.", config=True)
    most_pending = Integer(1000, min=1, help="How many accounts may wait for approval.", config=True)
    signups_per_address = Integer(
        300,
        min=1,
        help="How many accounts may be created from one address within an hour, and how many of them may wait for "
        "approval. A whole class may share an address, for example behind a router.",
        config=True,
    )
    link_days = Integer(7, min=1, help="For how many days a one-time link for a password is valid.", config=True)
    operators = List(
        Unicode(),
        help="The users who may open the operators' page, for example ['olga']. The hub's log names those at its start "
        "who have no account.",
        config=True,
    )
    tls_servers = List(
        Unicode(),
        help="The host names of the TLS servers in front of the hub's proxy. Sign-ups through such a server count for "
        "the address that the server appends to X-Forwarded-For, for example ['tls'].",
        config=True,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Create the first administrator's account if it does not exist; an existing account keeps its password."""
        super().__init__(*args, **kwargs)
        self.hasher = PasswordHasher()
        self.sign_ups = SignUps()
        create_table(self.db)
        if not self.user_exists(self.first_admin):
            self._make_first_admin()
        for name in map(self.normalize_username, self.operators):
            if not self.user_exists(name):
                self._warn_of_operator(name)

    def _warn_of_operator(self, name: str) -> None:
        """Say how an operator gets an account. Nobody can sign up with this name, because the hub gave it rights."""
        refusal = self.refusal(name)
        self.log.warning(
            "FARANDOLE_OPERATORS names %r, which has no account, so nobody can log in with this name. %s",
            name,
            f"Correct the name, which {refusal}." if refusal else "Create the account at /hub/authorize.",
        )

    def get_handlers(self, _app: Any) -> list[Any]:
        """Return this project's versions of NativeAuthenticator's pages."""
        return PAGES

    async def refresh_user(self, user: Any, handler: Any = None, **options: Any) -> bool:
        """Return whether a user may stay logged in and get servers; JupyterHub asks regularly and before each start.

        A user without an account was added by an administrator, or logged in before FARANDOLE_LOGIN was changed. For
        such a user:

        - requests with the user's own cookie or token are refused, except for the tokens that the hub created for the
          user's servers;
        - requests by other users are accepted, for example when an administrator starts the user's server.

        JupyterHub caches a positive result for `auth_refresh_age` (five minutes), no matter who sent the request. While
        such a user has a running server, an old cookie of the user can therefore be accepted too. Stop all servers
        before you change FARANDOLE_LOGIN.

        Raises HTTPError 403 if another user has the same slug.
        """
        await super().refresh_user(user, handler, **options)
        if account := self.get_user(user.name):
            return bool(account.is_authorized)
        return handler.current_user is not user or is_of_server(handler.get_token(), user)

    async def authenticate(self, _handler: Any, data: dict[str, str]) -> str | None:
        """Return the user's name, or None if the name or the password is wrong.

        Raises HTTPError 403 if the account is locked or not approved yet, and 429 while too many logins are in
        progress.
        """
        account = await self.find_account(data["username"], data["password"])
        if account is None:
            return None
        if not account.is_authorized:
            raise HTTPError(403, "The administrator has not approved this account yet.")
        return str(account.username)

    async def find_account(self, username: str, password: str) -> UserInfo | None:
        """Return the account with this name and password, or None if the name or the password is wrong.

        This method does not reveal which accounts exist: unknown names take the same time as known names, and are also
        locked after failed logins. Raises HTTPError 403 while the name is locked, and 429 while too many logins are in
        progress.
        """
        name = self.normalize_username(username)
        if not self.validate_username(name) or len(password.encode()) > PASSWORD_BYTES:
            return None
        self._check_lock(name)
        self.hasher.check_room()
        # Count the attempt before comparing the passwords. Otherwise, any number of simultaneous attempts would be
        # allowed.
        self.add_login_attempt(name)
        account = self.get_user(name)
        hashed = account.password if account else None
        right = await self.hasher.matches(password, hashed)
        # Read the account again, because a password change during the comparison must end all logins with the old
        # password.
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
        """Return whether the account is locked after too many failed logins, and delete failures that have expired."""
        return not self.can_try_to_login_again(username) and super().is_blocked(username)

    def can_try_to_login_again(self, username: str) -> bool:
        """Return whether the user has no recent failed login, and delete failures that have expired."""
        # NativeAuthenticator's own method never deletes failures, and it ignores the days in a time difference.
        attempts = self.login_attempts.get(username)
        if attempts and not self._is_old(attempts):
            return False
        self.login_attempts.pop(username, None)
        return True

    def add_login_attempt(self, username: str) -> None:
        """Record an attempt as failed, and delete expired failures of all names.

        Failures are also stored for names that do not exist, so their number would otherwise grow without limit. A
        successful login removes the failures of its name.
        """
        attempts = self.login_attempts.pop(username, {"count": 0})
        # Insert the entry at the end, so that the dictionary stays sorted by time.
        self.login_attempts[username] = {"count": attempts["count"] + 1, "time": datetime.now(UTC)}
        while self._is_old(self.login_attempts[oldest := next(iter(self.login_attempts))]):
            del self.login_attempts[oldest]

    def _is_old(self, attempts: dict[str, Any]) -> bool:
        return bool((datetime.now(UTC) - attempts["time"]).total_seconds() > self.seconds_before_next_try)

    async def create_user(self, username: str, password: str, *, address: str = "") -> UserInfo | None:
        """Create an account for a user who signs up from ``address``; return None if name or password is not accepted.

        The following names are refused:

        - names of administrators, because administrator rights depend only on the name;
        - names of hub users without an account, unless an administrator has to approve the new account;
        - names that would get the same host as an existing user.

        Raises HTTPError 403 if another user has the same slug, and 429 if there are too many new accounts.
        """
        name = self.normalize_username(username)
        if not self._accepts(name, password):
            return None
        self._check_signups(address)
        hashed = await self.hasher.hash(password)
        # Repeat the checks, because another request may have created an account while the password was hashed.
        if not self._accepts(name, password):
            return None
        self._check_signups(address)
        account = UserInfo(username=name, password=hashed, is_authorized=self.open_signup)
        self.db.add(account)
        self.db.commit()
        self.sign_ups.add(name, address)
        return account

    async def change_password(self, username: str, new_password: str, *, secret: str | None = None) -> bool:
        """Change the password of an account; return False if the account does not exist or the password is too weak.

        The account's one-time link becomes invalid. If ``secret`` is given, it must be that of the link. A lock after
        failed logins then ends, because the user may have forgotten the password.
        """
        account = self.get_user(username)
        if account is None or not self.is_password_strong(new_password):
            return False
        hashed = await self.hasher.hash(new_password)
        # Another request may have used or ended the link while the password was hashed.
        if secret is not None:
            account = self.account_of_link(secret)
        account.password = hashed
        self.db.commit()
        end_link(self.db, account.username)
        if secret is not None:
            self.login_attempts.pop(account.username, None)
        return True

    def refusal(self, name: str) -> str | None:
        """Return why an administrator cannot create an account, as a phrase that follows the name; None if possible."""
        if not self.validate_username(name):
            return "is not a user name: use at most 64 letters, digits and the characters _ . @ + -"
        if self.user_exists(name):
            return "has an account"
        if (holder := slug_holder(self.db, name)) not in {None, name}:
            return f"would get the home and network of the user {holder!r}"
        return "would get the host of another user" if self._has_others_host(name) else None

    def add_account(self, name: str) -> None:
        """Create an account that may log in once its user has set a password with a link; see `refusal`."""
        self.db.add(UserInfo(username=name, password=NO_PASSWORD, is_authorized=True))
        self.db.commit()

    def awaits_password(self, name: str) -> bool:
        """Return whether an account may log in once its user has set the first password with a link."""
        account = self.get_user(name)
        return account is not None and bool(account.is_authorized) and account.password == NO_PASSWORD

    def make_link(self, name: str) -> str:
        """Return the secret of a new one-time link for an account. The database stores only its hash."""
        return make_secret(self.db, name, self.link_days)

    def account_of_link(self, secret: str) -> UserInfo:
        """Return the account to which a one-time link belongs; raises HTTPError 403 if the link is not valid."""
        account = self.get_user(name) if (name := name_of(self.db, secret)) else None
        if account is None or not account.is_authorized:
            raise HTTPError(
                403,
                "This link is not valid: it was used, replaced, cut off or has expired. Ask the administrator for a "
                "new one.",
            )
        return account

    def delete_user(self, user: Any) -> Any:
        """Delete the account of a user, and its link, so that a later account with that name does not get the link."""
        end_link(self.db, self.normalize_username(user.name))
        return super().delete_user(user)

    def _accepts(self, name: str, password: str) -> bool:
        accepted = self.enable_signup and self.validate_username(name) and self.is_password_strong(password)
        if not accepted or name in self.admin_users or self.user_exists(name) or self._would_inherit(name):
            return False
        check_slug(self.db, name)
        return not self._has_others_host(name)

    def _check_signups(self, address: str) -> None:
        """Raise HTTPError 429 if too many accounts were created recently or are waiting for approval."""
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
        """Return the names of the accounts that are waiting for approval.

        Unapproved accounts that have a hub user are left out, for example accounts whose approval an administrator has
        withdrawn after a login.
        """
        waiting = self.db.query(UserInfo.username).outerjoin(orm.User, orm.User.name == UserInfo.username)
        return {name for (name,) in waiting.filter(UserInfo.is_authorized.is_(False), orm.User.id.is_(None))}

    def _would_inherit(self, name: str) -> bool:
        """Return whether a new account would get the rights of an existing user without approval, and log a warning."""
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
        """Return whether a password is accepted; passwords that are too long for bcrypt are not."""
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
    """Configure the kind of login that FARANDOLE_LOGIN selects; raises `SettingsError`."""
    kind = _choice(environ, "FARANDOLE_LOGIN", LOGINS)
    given = {key: needed(environ, key, what) for key, what in required(kind).items()}
    c.Authenticator.admin_users = {given["FARANDOLE_ADMIN"]}
    # Without these two settings, the hub would accept the tokens of locked-out users and start servers for them.
    c.Authenticator.auth_refresh_strict = c.Authenticator.refresh_pre_spawn = True
    if kind == "native":
        _configure_native(c, given, SIGNUPS[_choice(environ, "FARANDOLE_SIGNUP", tuple(SIGNUPS))])
    else:
        configure_oauth(c, given, kind)


def _choice(environ: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str:
    """Return the value of a variable, or the first of ``choices`` if unset; raises `SettingsError` for other values."""
    value = environ.get(key) or choices[0]
    if value not in choices:
        raise SettingsError(f"{key} is {value!r}. It must be one of: {', '.join(choices)}.")
    return value


def _configure_native(c: Any, given: Mapping[str, str], signup: tuple[bool, bool]) -> None:
    c.JupyterHub.authenticator_class = AccountAuthenticator
    add_templates(c, Path(nativeauthenticator.__file__).parent / "templates")
    show(c, native_accounts=True)
    c.AccountAuthenticator.first_admin = given["FARANDOLE_ADMIN"]
    c.AccountAuthenticator.first_password = given["FARANDOLE_ADMIN_PASSWORD"]
    check_admin_password(given["FARANDOLE_ADMIN_PASSWORD"])
    c.NativeAuthenticator.enable_signup, c.NativeAuthenticator.open_signup = signup
    if c.NativeAuthenticator.enable_signup:
        _show_signup_link(c)
    c.NativeAuthenticator.minimum_password_length = PASSWORD_LENGTH
    c.NativeAuthenticator.check_common_password = True
    c.NativeAuthenticator.allowed_failed_logins = FAILED_LOGINS
    c.NativeAuthenticator.seconds_before_next_try = LOCKOUT_SECONDS
    c.Authenticator.username_pattern = USER_NAME
    # Whether a user may log in depends only on the account, so no separate list of allowed users is needed.
    c.Authenticator.allow_all = True


def _show_signup_link(c: Any) -> None:
    """Show the link on the login page, below the announcement of the site, which it would hide there."""
    shown = template_vars(c)
    site = shown.get("announcement_login") or shown.get("announcement")
    show(c, announcement_login=f"{site}<br>{SIGNUP_LINK}" if isinstance(site, str) else SIGNUP_LINK)
