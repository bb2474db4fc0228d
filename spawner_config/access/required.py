"""The kinds of login and the variables that each of them requires, for the hub and for `make doctor`.

This module imports only the standard library, because `make doctor` runs before any package is installed.
"""

from __future__ import annotations

LOGINS = ("native", "github", "google", "generic")
SIGNUPS = {"closed": (False, False), "approval": (True, False), "open": (True, True)}
"""Maps each value of FARANDOLE_SIGNUP to two flags: whether users can sign up, and whether they can log in without
approval."""
REGISTRATION = {
    "github": "GitHub gives it to an OAuth app that you register at https://github.com/settings/developers",
    "google": "Google gives it to an OAuth client that you create at https://console.cloud.google.com/apis/credentials",
    "generic": "your provider gives it to a client that you register there",
}
# The names in parentheses are the keys in the provider's /.well-known/openid-configuration.
GENERIC = {
    "authorize_url": "the address of the provider's login page (authorization_endpoint)",
    "token_url": "the address at which the provider issues tokens (token_endpoint)",
    "userdata_url": "the address at which the provider returns the user of a token (userinfo_endpoint)",
    "username_claim": "the claim that holds the user's name, often preferred_username or email",
}


def variable(key: str) -> str:
    """Return the name of the environment variable for a trait of GenericOAuthenticator."""
    return f"FARANDOLE_OAUTH_{key.upper()}"


def required(login: str) -> dict[str, str]:
    """Return the variables that a kind of login requires, each with a phrase that describes its value."""
    admin = {"FARANDOLE_ADMIN": "the user name of the administrator"}
    if login == "native":
        password = "the administrator's first password (openssl rand -base64 18)"
        return {**admin, "FARANDOLE_ADMIN_PASSWORD": password}
    return {
        **admin,
        "FARANDOLE_OAUTH_CLIENT_ID": f"the client's id; {REGISTRATION[login]}",
        "FARANDOLE_OAUTH_CLIENT_SECRET": f"the client's secret; {REGISTRATION[login]}",
        "FARANDOLE_OAUTH_CALLBACK_URL": "the hub's address followed by /hub/oauth_callback, as registered there",
        "FARANDOLE_ALLOWED_USERS": "the names of users who may log in, separated by commas, or *",
        **({variable(key): what for key, what in GENERIC.items()} if login == "generic" else {}),
    }
