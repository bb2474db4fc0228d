"""Logins by an OAuth provider, whose refusals are told as such."""

from __future__ import annotations

from json import JSONDecodeError
from typing import TYPE_CHECKING, Any

from oauthenticator.oauth2 import OAuthenticator
from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError
from traitlets.utils.importstring import import_item

from spawner_config.settings import SettingsError, needed

if TYPE_CHECKING:
    from collections.abc import Mapping

PROVIDERS = {
    "github": "oauthenticator.github.GitHubOAuthenticator",
    "google": "oauthenticator.google.GoogleOAuthenticator",
    "generic": "oauthenticator.generic.GenericOAuthenticator",
}
REGISTRATION = {
    "github": "GitHub gives it to an OAuth app that you register at https://github.com/settings/developers",
    "google": "Google gives it to an OAuth client that you make at https://console.cloud.google.com/apis/credentials",
    "generic": "your provider gives it to a client that you register there",
}
GENERIC = {
    "authorize_url": "the address of the provider's log-in page (authorization_endpoint)",
    "token_url": "the address where the provider gives tokens (token_endpoint)",
    "userdata_url": "the address where the provider tells who a token is of (userinfo_endpoint)",
    "username_claim": "the name of what holds the user's name there, often preferred_username or email",
}
"""Their names in brackets are those of the provider's /.well-known/openid-configuration."""


class ErrorReportingAuthenticator(OAuthenticator):  # type: ignore[misc]
    """What all providers share: pages that say what failed, and no more than is allowed now."""

    async def authenticate(self, handler: Any, data: Any = None, **options: Any) -> Any:
        """Return the user whom the provider names; raises HTTPError 403 where it refuses, 503 where it fails."""
        try:
            return await super().authenticate(handler, data, **options)
        except HTTPClientError as exc:
            if 400 <= exc.code < 500:
                raise HTTPError(
                    403,
                    f"The login provider refused this login with HTTP {exc.code}. Log in again; if it refuses again, "
                    "the administrator finds its reason in the hub's log.",
                ) from exc
            raise _failed(str(exc)) from exc
        except (OSError, JSONDecodeError) as exc:
            self.log.error("The login provider cannot be used: %s", exc)
            raise _failed(type(exc).__name__) from exc

    def user_info_to_username(self, user_info: dict[str, Any]) -> str:
        """Return the user's name; raises HTTPError 403 where the provider does not tell it."""
        try:
            return str(super().user_info_to_username(user_info))
        except ValueError as exc:
            raise HTTPError(
                403,
                f"The login provider tells no {self.username_claim!r} of you, which would be your name here. The "
                "administrator can choose another claim with FARANDOLE_OAUTH_USERNAME_CLAIM.",
            ) from exc

    async def refresh_user(self, user: Any, handler: Any = None, **options: Any) -> Any:
        """Return whether a user who is logged in may stay so: a name that was taken off the list may not."""
        allowed = self.allow_all or user.name in self.allowed_users | self.admin_users
        return allowed and await super().refresh_user(user, handler, **options)


def _failed(reason: str) -> HTTPError:
    return HTTPError(503, f"The login provider cannot be used now ({reason}). Try again later.")


def configure_oauth(c: Any, environ: Mapping[str, str], kind: str) -> None:
    """Set up logins by the provider ``kind``; raises `SettingsError`."""
    base = import_item(PROVIDERS[kind])
    c.JupyterHub.authenticator_class = type(base.__name__, (ErrorReportingAuthenticator, base), {})
    given = REGISTRATION[kind]
    c.OAuthenticator.client_id = needed(environ, "FARANDOLE_OAUTH_CLIENT_ID", f"the client's id; {given}")
    c.OAuthenticator.client_secret = needed(environ, "FARANDOLE_OAUTH_CLIENT_SECRET", f"the client's secret; {given}")
    c.OAuthenticator.oauth_callback_url = needed(
        environ,
        "FARANDOLE_OAUTH_CALLBACK_URL",
        "the hub's address with /hub/oauth_callback behind it, as the provider has it too",
    )
    # The hub would let a token go on whose user is no longer named, and start servers for it.
    c.Authenticator.auth_refresh_strict = c.Authenticator.refresh_pre_spawn = True
    _configure_allowed(c, environ)
    if kind == "generic":
        c.GenericOAuthenticator.scope = ["openid", "profile", "email"]
        for key, what in GENERIC.items():
            setattr(c.GenericOAuthenticator, key, needed(environ, f"FARANDOLE_OAUTH_{key.upper()}", what))


def _configure_allowed(c: Any, environ: Mapping[str, str]) -> None:
    users = [name.strip() for name in (environ.get("FARANDOLE_ALLOWED_USERS") or "").split(",") if name.strip()]
    if not users:
        raise SettingsError("FARANDOLE_ALLOWED_USERS is empty: with OAuth it must name who may log in, or be *.")
    if "*" in users and len(users) > 1:
        raise SettingsError(
            "FARANDOLE_ALLOWED_USERS has * beside names. Write * alone for everybody whom the provider "
            "knows, or names alone."
        )
    if users == ["*"]:
        c.OAuthenticator.allow_all = True
    else:
        c.OAuthenticator.allowed_users = set(users)
