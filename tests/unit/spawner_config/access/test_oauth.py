from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from jupyterhub import orm
from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError
from traitlets.config import Config

from spawner_config.access.logins import configure_logins
from spawner_config.access.oauth import PROVIDERS
from spawner_config.settings import SettingsError
from tests.unit.spawner_config.access.test_slugs import FIRST, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

OAUTH = {
    "FARANDOLE_ADMIN": "root",
    "FARANDOLE_OAUTH_CLIENT_ID": "id",
    "FARANDOLE_OAUTH_CLIENT_SECRET": "secret",
    "FARANDOLE_OAUTH_CALLBACK_URL": "https://hub.example.org/hub/oauth_callback",
    "FARANDOLE_ALLOWED_USERS": "ada, grace",
}
GENERIC = {
    **OAUTH,
    "FARANDOLE_LOGIN": "generic",
    "FARANDOLE_OAUTH_AUTHORIZE_URL": "https://id.example.org/authorize",
    "FARANDOLE_OAUTH_TOKEN_URL": "https://id.example.org/token",
    "FARANDOLE_OAUTH_USERDATA_URL": "https://id.example.org/userinfo",
    "FARANDOLE_OAUTH_USERNAME_CLAIM": "preferred_username",
}


def configured(environment):
    c = Config()
    configure_logins(c, environment)
    return c


def authenticator(environment, answer: Callable[[str], dict] | None = None, database=None):
    """Return the hub's authenticator. ``answer`` returns the provider's response to a request for a URL."""
    c = configured(environment)
    return c.JupyterHub.authenticator_class(config=c, http_client=Provider(answer), _deprecated_db_session=database)


class Provider:
    def __init__(self, answer):
        self.answer = answer

    async def fetch(self, request, **options):
        answer = self.answer(request.url)
        return SimpleNamespace(body=answer if isinstance(answer, bytes) else json.dumps(answer).encode())


@pytest.mark.parametrize("kind", PROVIDERS)
def test_listed_users_may_log_in_with_each_provider(kind):
    c = configured({**GENERIC, "FARANDOLE_LOGIN": kind})
    ours = c.JupyterHub.authenticator_class(config=c)
    assert type(ours).__name__.lower().startswith(kind)
    assert (ours.client_id, ours.client_secret) == ("id", "secret")
    assert ours.oauth_callback_url == OAUTH["FARANDOLE_OAUTH_CALLBACK_URL"]
    assert ours.allowed_users == {"ada", "grace"}
    assert ours.admin_users == {"root"}
    assert not ours.allow_all
    assert not ours.allow_existing_users


def test_a_star_allows_everybody():
    assert authenticator({**GENERIC, "FARANDOLE_ALLOWED_USERS": "*"}).allow_all


@pytest.mark.parametrize(
    ("kind", "key", "remedy"),
    [
        ("github", "CLIENT_ID", "https://github.com/settings/developers"),
        ("github", "CLIENT_SECRET", "https://github.com/settings/developers"),
        ("github", "CALLBACK_URL", "followed by /hub/oauth_callback"),
        ("google", "CLIENT_SECRET", "https://console.cloud.google.com/apis/credentials"),
        ("generic", "CLIENT_ID", "register there"),
        ("generic", "AUTHORIZE_URL", "authorization_endpoint"),
        ("generic", "TOKEN_URL", "token_endpoint"),
        ("generic", "USERDATA_URL", "userinfo_endpoint"),
        ("generic", "USERNAME_CLAIM", "preferred_username"),
    ],
)
def test_a_missing_setting_is_named_with_its_source(kind, key, remedy):
    name = f"FARANDOLE_OAUTH_{key}"
    with pytest.raises(SettingsError, match=f"^{name} is not set.*{remedy}"):
        configured({**GENERIC, "FARANDOLE_LOGIN": kind, name: ""})


@pytest.mark.parametrize("users", ["", " , "])
def test_an_empty_list_of_users_is_refused(users):
    with pytest.raises(SettingsError, match="FARANDOLE_ALLOWED_USERS is (not set|empty)"):
        configured({**GENERIC, "FARANDOLE_ALLOWED_USERS": users})


def test_a_star_beside_names_is_refused():
    with pytest.raises(SettingsError, match=r"has both \* and names. Write only \*"):
        configured({**GENERIC, "FARANDOLE_ALLOWED_USERS": "ada, *"})


class Handler:
    """A fake handler of a request to the hub's OAuth callback URL."""

    def get_argument(self, name, default=None):
        return {"code": "a-code"}.get(name, default)

    def get_state_cookie(self):
        # This is {"code_verifier": "v"}, encoded in Base64.
        return "eyJjb2RlX3ZlcmlmaWVyIjogInYifQ=="


def telling(**claims):
    return lambda url: claims if url.startswith(GENERIC["FARANDOLE_OAUTH_USERDATA_URL"]) else TOKEN


TOKEN = {"access_token": "a-token", "token_type": "Bearer"}


async def test_the_claim_is_the_users_name():
    ours = authenticator(GENERIC, telling(preferred_username="Ada", email="ada@example.org"))
    model = await ours.authenticate(Handler())
    assert model["name"] == "ada"
    assert await ours.check_allowed("ada", model)
    assert not await ours.check_allowed("mallory", {**model, "name": "mallory"})


def failing(exc):
    def answer(url):
        raise exc

    return answer


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (failing(HTTPClientError(401, response=None)), 403, "refused this login with HTTP 401. Log in again"),
        (failing(HTTPClientError(502)), 503, "cannot be used now .*502.* Try again later"),
        (failing(HTTPClientError(599, "Timeout")), 503, "cannot be used now .*Timeout.* Try again later"),
        (failing(ConnectionRefusedError("no")), 503, "cannot be used now .ConnectionRefusedError.. Try again later"),
        (lambda url: b"<html>", 503, "cannot be used now"),
        (telling(email="ada@example.org"), 403, "no 'preferred_username'.*FARANDOLE_OAUTH_USERNAME_CLAIM"),
    ],
)
async def test_errors_of_the_provider_are_shown(answer, status, words):
    with pytest.raises(HTTPError, match=words) as caught:
        await authenticator(GENERIC, answer).authenticate(Handler())
    assert caught.value.status_code == status


async def stays(environment, name):
    return await authenticator(environment).refresh_user(SimpleNamespace(name=name))


async def test_a_user_removed_from_the_list_is_logged_out():
    assert await stays(GENERIC, "ada")
    assert await stays(GENERIC, "root")
    assert not await stays({**GENERIC, "FARANDOLE_ALLOWED_USERS": "grace"}, "ada")
    assert await stays({**GENERIC, "FARANDOLE_ALLOWED_USERS": "*"}, "ada")
    c = configured(GENERIC)
    assert c.Authenticator.auth_refresh_strict
    assert c.Authenticator.refresh_pre_spawn


async def test_a_first_login_under_a_name_with_the_slug_of_another_is_refused(database):
    environment = {**GENERIC, "FARANDOLE_ALLOWED_USERS": "*"}
    database.add(orm.User(name=FIRST))
    database.commit()
    for name, refused in ((FIRST, False), (SECOND, True)):
        ours = authenticator(environment, telling(preferred_username=name), database)
        if not refused:
            assert (await ours.get_authenticated_user(Handler(), None))["name"] == name
            continue
        with pytest.raises(HTTPError, match="403.*belongs to another user"):
            await ours.get_authenticated_user(Handler(), None)
