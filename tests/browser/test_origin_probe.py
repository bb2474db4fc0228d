"""Tests what a hostile page can steal from users who open it.

It steals nothing if each user has a separate origin, but it steals tokens if all users share one origin. The page may
also be that of an endpoint, and it changes nothing at endpoints of other users. The last test checks that requests for
a server that is not running, and requests to 127.0.0.1, are redirected to the hub's host.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from farandole import Endpoint

from hub.process import local_session
from spawner_config.settings import ROOT
from tests import caddy
from tests.browser.origin_probe import APP, ENDPOINT_PAGE, EVE, SOURCES, OriginProbe, Victim, hostile_files, install
from tests.clients.hosts import url_of
from tests.clients.kernel import RemoteKernel
from tests.hub import run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.hub import RunningHub

ADMIN = "root-of-all"
ADMIN_PASSWORD = "the administrator's password, 32 or more"
CONFIG = f"""
load_subconfig({str(ROOT / "hub" / "jupyterhub_config.py")!r})
c = get_config()
c.Authenticator.admin_users = {{{ADMIN!r}}}
c.SharedPasswordAuthenticator.admin_password = {ADMIN_PASSWORD!r}
"""

STOLEN_WITH_ONE_ORIGIN = (
    "hub_tokens",
    "server_content",
    "new_kernel",
    "websockets",
    "windows",
    "service_workers",
    "spawn_by_navigation",
)


def prepared(hub: RunningHub) -> OriginProbe:
    """Start all users' servers, and install the hostile pages on eve's server."""
    eve = hub.browser(EVE)
    address = eve.start_notebook("lean")
    with RemoteKernel(address, eve.make_token(), "scratch.ipynb") as kernel:
        install(kernel)
    eve.stop_notebook()
    eve.start_notebook("lean")
    hub.start_notebook("grace", "lean")
    hub.browser(ADMIN, ADMIN_PASSWORD).start_notebook("lean")
    return OriginProbe(hub.url, hub.password)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "jupyterhub_config.py"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, config: Path) -> Iterator[RunningHub]:
    with run_hub(tmp_path_factory.mktemp("hub"), config=config) as hub:
        yield hub


@pytest.fixture(scope="module")
def probe(hub: RunningHub) -> OriginProbe:
    return prepared(hub)


@pytest.fixture
def victims(hub: RunningHub) -> dict[str, Victim]:
    return {
        "user": Victim(name="grace", password=hub.password),
        "administrator": Victim(name=ADMIN, password=ADMIN_PASSWORD),
    }


@pytest.mark.timeout(600)
# `.ci/run` probes a user in tests/docker/test_origins.py.
@pytest.mark.parametrize("who", [pytest.param("user", marks=pytest.mark.release), "administrator"])
def test_a_page_of_another_user_steals_nothing(
    probe: OriginProbe, victims: dict[str, Victim], chromium: Browser, who: str
) -> None:
    probe.assert_nothing_is_stolen(chromium, victims[who])


# Only for `make release`: the page of a notebook server makes the same attempts for each change.
@pytest.mark.release
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("probe")
def test_a_page_of_another_users_endpoint_steals_nothing(
    victims: dict[str, Victim], hub: RunningHub, chromium: Browser
) -> None:
    victim = victims["user"]
    pages = OriginProbe(hub.url, hub.password, ENDPOINT_PAGE)
    with running_command(hub, EVE, "pages", SOURCES / "evil.py") as endpoint:
        endpoint.share(victim.name)
        pages.assert_nothing_is_stolen(chromium, victim)


def test_a_page_of_another_user_changes_nothing_at_an_endpoint(
    probe: OriginProbe, victims: dict[str, Victim], hub: RunningHub, chromium: Browser
) -> None:
    victim = victims["user"]
    with running_command(hub, victim.name, "app", APP), probe.logged_in(chromium, victim) as (_, page):
        # The endpoint's own page may act, and the browser now has the endpoint's cookie.
        assert probe.acts_at_app(page, victim) == []
        assert page.evaluate("fetch('', {method: 'POST', body: 'own'}).then((answer) => answer.ok)")
        assert probe.steal(page, victim, "endpoints", "websockets") == {}
        assert probe.acts_at_app(page, victim) == ["own"]


@contextmanager
def running_command(hub: RunningHub, user: str, name: str, script: Path) -> Iterator[Endpoint]:
    """Run an endpoint of a user whose command is a script."""
    where = {"hub_url": hub.url, "token": hub.token_for(user)}
    endpoint = Endpoint.start(command=["python", str(script)], name=name, progress=len, **where)
    try:
        yield endpoint
    finally:
        endpoint.stop()


# Only for `make release`: tests/docker/test_origins.py runs the probe over TLS for each change.
@pytest.mark.release
@pytest.mark.timeout(600)
def test_a_page_of_another_user_steals_nothing_over_tls(tmp_path: Path, chromium: Browser) -> None:
    with caddy.hub_behind_caddy(tmp_path) as (hub, tls):
        for number, name in enumerate((EVE, "grace"), start=2):
            assert caddy.sign_up(tls.session(f"127.0.0.{number}"), tls, name) == 200
        home = hub.state / "homes" / EVE
        for name, text in hostile_files().items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text.replace("HOME", str(home)))
        probe = OriginProbe(tls.url, caddy.PASSWORD)
        victims = [
            Victim(name="grace", password=caddy.PASSWORD),
            Victim(name=caddy.ADMIN, password=caddy.ADMIN_PASSWORD),
        ]
        for user in (Victim(name=EVE, password=caddy.PASSWORD), *victims):
            probe.start_server(chromium, user, "lean")
        for victim in victims:
            probe.assert_nothing_is_stolen(chromium, victim)


@pytest.mark.release
@pytest.mark.timeout(600)
def test_with_one_origin_it_steals_tokens(
    tmp_path_factory: pytest.TempPathFactory, config: Path, chromium: Browser
) -> None:
    with run_hub(tmp_path_factory.mktemp("one"), config=config, one_origin=True) as hub:
        probe = prepared(hub)
        tokens: list[str] = []
        for victim in (
            Victim(name="grace", password=hub.password),
            Victim(name=ADMIN, password=ADMIN_PASSWORD),
        ):
            with probe.logged_in(chromium, victim) as (_, page):
                stolen = probe.steal(page, victim, *STOLEN_WITH_ONE_ORIGIN)
                assert set(stolen) == set(STOLEN_WITH_ONE_ORIGIN)
                tokens += stolen["hub_tokens"]
        # The probe finds a token of each user, with which eve's code can act as that user.
        users = [hub.api(token, "GET", "/hub/api/user").json().get("name") for token in tokens]
        assert users == ["grace", ADMIN]


def test_the_address_of_a_culled_server_and_of_this_machine_lead_to_the_right_page(
    probe: OriginProbe, victims: dict[str, Victim], hub: RunningHub, chromium: Browser
) -> None:
    victim = replace(victims["user"], name="emmy")
    port = hub.process.settings.port
    with probe.logged_in(chromium, victim) as (_, page):
        page.goto(url_of(hub.url, "/user/emmy/lab/tree/a.ipynb"))
        assert page.url.startswith(f"{hub.url}/hub/user/emmy/lab/tree/a.ipynb")
        page.goto(f"http://127.0.0.1:{port}/hub/home")
        assert page.url == f"{hub.url}/hub/home"
    for path in ("/hub/login", "/user/emmy/lab", "/"):
        answer = local_session().get(f"http://127.0.0.1:{port}{path}", allow_redirects=False, timeout=10)
        assert (answer.status_code, answer.headers["Location"]) == (302, f"{hub.url}{path}")
