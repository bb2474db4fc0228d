"""Logins with an OAuth provider, with understandable messages for the provider's errors."""

from __future__ import annotations

from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

from oauthenticator.oauth2 import OAuthenticator
from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError
from traitlets.utils.importstring import import_item

from spawner_config.access.guards import GuardedAuthenticator
from spawner_config.access.required import GENERIC, variable
from spawner_config.settings import SettingsError
from spawner_config.shares import items

if TYPE_CHECKING:
    from collections.abc import Mapping

PROVIDERS = {
    "github": "oauthenticator.github.GitHubOAuthenticator",
    "google": "oauthenticator.google.GoogleOAuthenticator",
    "generic": "oauthenticator.generic.GenericOAuthenticator",
}


class ErrorReportingAuthenticator(GuardedAuthenticator, OAuthenticator):  # type: ignore[misc]
    """Base class for all providers: reports provider errors to users, and rechecks whether a user is still allowed."""

    async def authenticate(self, handler: Any, data: Any = None, **options: Any) -> Any:
        """Return the user that the provider authenticated.

        Raises HTTPError 403 if the provider refuses the login, and 503 if the provider cannot be used.
        """
        try:
            return await super().authenticate(handler, data, **options)
        except HTTPClientError as exc:
            if 400 <= exc.code < 500:
                raise HTTPError(
                    403,
                    f"The login provider refused this login with HTTP {exc.code}. Log in again. If it refuses again, "
                    "the administrator can find the reason in the hub's log.",
                ) from exc
            raise _failed(str(exc)) from exc
        except (OSError, JSONDecodeError) as exc:
            self.log.error("The login provider cannot be used: %s", exc)
            raise _failed(type(exc).__name__) from exc

    def user_info_to_username(self, user_info: dict[str, Any]) -> str:
        """Return the user's name; raises HTTPError 403 if the provider's answer does not contain it."""
        try:
            return str(super().user_info_to_username(user_info))
        except ValueError as exc:
            raise HTTPError(
                403,
                f"The login provider sends no {self.username_claim!r}, which would be your user name here. The "
                "administrator can choose another claim with FARANDOLE_OAUTH_USERNAME_CLAIM.",
            ) from exc

    async def refresh_user(self, user: Any, handler: Any = None, **options: Any) -> Any:
        """Return whether a user may stay logged in; users who are no longer in the list of allowed users may not."""
        allowed = self.allow_all or user.name in self.allowed_users | self.admin_users
        return allowed and await super().refresh_user(user, handler, **options)


def _failed(reason: str) -> HTTPError:
    return HTTPError(503, f"The login provider cannot be used now ({reason}). Try again later.")


def configure_oauth(c: Any, given: Mapping[str, str], kind: str) -> None:
    """Configure logins with the provider ``kind``; ``given`` has the required variables. Raises `SettingsError`."""
    base = import_item(PROVIDERS[kind])
    c.JupyterHub.authenticator_class = type(base.__name__, (ErrorReportingAuthenticator, base), {})
    c.OAuthenticator.client_id = given["FARANDOLE_OAUTH_CLIENT_ID"]
    c.OAuthenticator.client_secret = given["FARANDOLE_OAUTH_CLIENT_SECRET"]
    c.OAuthenticator.oauth_callback_url = given["FARANDOLE_OAUTH_CALLBACK_URL"]
    _configure_allowed(c, set(items(given["FARANDOLE_ALLOWED_USERS"])))
    if kind == "generic":
        c.GenericOAuthenticator.scope = ["openid", "profile", "email"]
        for key in GENERIC:
            setattr(c.GenericOAuthenticator, key, given[variable(key)])


def _configure_allowed(c: Any, users: set[str]) -> None:
    if not users:
        raise SettingsError("FARANDOLE_ALLOWED_USERS is empty. It must name the users who may log in, or be *.")
    if users == {"*"}:
        c.OAuthenticator.allow_all = True
    elif "*" in users:
        raise SettingsError(
            "FARANDOLE_ALLOWED_USERS has both * and names. Write only * for all users of the provider, or only names."
        )
    else:
        c.OAuthenticator.allowed_users = users
