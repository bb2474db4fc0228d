"""The proxy, HTTPS and users' networks of a hub in containers, and images that cannot be used."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import requests

from hub.process import local_session, wait_until
from images.names import NOTEBOOK, version
from spawner_config.origins.hosts import DEFAULT_DOMAIN
from tests.clients.browser import BrowserError
from tests.clients.hosts import url_of
from tests.docker.hub_api import HubApi
from tests.docker.probes import networks
from tests.docker.stack import ADMIN, Stack, make_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CELL_SECONDS = 240.0
AGAIN_SECONDS = 180.0
USER = "sofia"
OLD = "farandole-notebook-test-old:1"


@pytest.fixture(scope="module")
def api(stack: Stack) -> HubApi:
    return HubApi(stack, USER)


@pytest.fixture(scope="module")
def ines(stack: Stack) -> HubApi:
    """Return an API client for a user who never has a running server."""
    return HubApi(stack, "ines")


def answers(stack: Stack, user: str, token: str) -> bool:
    """Return whether the user's server answers through the proxy."""
    headers = {"Authorization": f"token {token}"}
    try:
        address = url_of(stack.url, f"/user/{user}/api/kernels")
        return local_session().get(address, headers=headers, timeout=10).ok
    except OSError:
        return False


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("up", "-d", "--force-recreate", "proxy"), id="recreated"),
        pytest.param(("restart", "proxy"), id="restarted", marks=pytest.mark.release),
    ],
)
def test_a_proxy_gets_its_routes_and_networks_back(stack: Stack, command: tuple[str, ...]) -> None:
    with stack.kernel(USER, "small") as kernel:
        token = stack.browser(USER).make_token()
        stack.compose(*command)
        wait_until(lambda: answers(stack, USER, token), AGAIN_SECONDS)
        [network] = networks(stack, f"{stack.name}-server-{USER}")
        assert network in networks(stack, f"{stack.name}-proxy")
    with stack.kernel(USER) as kernel:
        assert kernel.execute("print(6 * 7)", deadline=60).strip() == "42"


def test_a_users_network_is_removed_with_the_last_server(stack: Stack, api: HubApi) -> None:
    network = f"{stack.name}-user-{USER}"

    def there() -> bool:
        return network in stack.docker("network", "ls", "--format", "{{.Name}}").split()

    with stack.kernel(USER, "small") as kernel:
        kernel.execute("%load_ext farandole", deadline=CELL_SECONDS)
        kernel.execute("%cluster start --workers 1 --profile small --backend none", deadline=CELL_SECONDS)
        assert there()
        kernel.execute("%cluster stop", deadline=CELL_SECONDS)
        assert there()
    api.stop(USER, "")
    wait_until(lambda: not there(), AGAIN_SECONDS)


def test_a_start_given_up_while_the_engine_is_slow_leaves_no_server(stack: Stack, api: HubApi) -> None:
    path, container = f"users/{USER}/servers/late", f"{stack.name}-server-{USER}--late"

    def there() -> bool:
        return any(name.startswith(container) for name in stack.containers())

    assert api.ask(USER, "late", profile="small").status_code in {201, 202}
    wait_until(there, AGAIN_SECONDS)
    stack.docker("pause", f"{stack.name}-engine")
    try:
        # The hub cancels the start, waits for one second, and answers 500 because the clean-up has not ended.
        assert api.request("DELETE", path, {"remove": True}).status_code == 500
    finally:
        stack.docker("unpause", f"{stack.name}-engine")
    wait_until(lambda: "late" not in api.servers(USER), AGAIN_SECONDS)
    assert not there()
    assert api.request("DELETE", path, {"remove": True}).status_code == 204


@pytest.fixture
def old_image() -> Iterator[None]:
    recipe = f"FROM {NOTEBOOK.tag(version())}\nLABEL org.opencontainers.image.version=0.0.1\n"
    subprocess.run(["docker", "build", "-q", "-t", OLD, "-"], input=recipe, text=True, check=True, capture_output=True)
    yield
    subprocess.run(["docker", "image", "rm", OLD], check=True, capture_output=True)


@pytest.mark.usefixtures("old_image")
def test_an_image_of_another_version_is_reported_at_spawn(ines: HubApi) -> None:
    end = ines.start("ines", profile="old")
    assert end["failed"]
    for part in (OLD, "has version 0.0.1", f"the hub has version {version()}", "FARANDOLE_VERSION in .env"):
        assert part in end["message"], end


def test_a_missing_image_is_reported_at_spawn(ines: HubApi) -> None:
    end = ines.start("ines", profile="missing")
    assert end["failed"]
    assert "farandole-notebook-missing:1 is not on this host, and the engine cannot pull it" in end["message"], end
    assert "make images" in end["message"]


def test_an_unknown_profile_in_a_saved_form_is_reported(stack: Stack, ines: HubApi) -> None:
    answer = ines.ask("ines", profile="long-gone")
    assert answer.status_code == 400
    assert (
        "There is no profile 'long-gone' here. Choose one of: cpu, cpu-2, lean, serving, small"
        in answer.json()["message"]
    )
    with pytest.raises(BrowserError, match="HTTP 400"):
        stack.browser("ines").start_notebook("long-gone")


def test_a_hub_for_others_without_https_does_not_start(tmp_path: Path) -> None:
    stack = Stack(tmp_path, subnets="10.214.32.0/24", FARANDOLE_BIND="0.0.0.0")
    try:
        stack.compose("up", "-d", check=False)
        wait_until(lambda: "The hub does not start. FARANDOLE_BIND is '0.0.0.0'" in stack.logs(), AGAIN_SECONDS)
        assert "FARANDOLE_DOMAIN is not set, and FARANDOLE_BIND=0.0.0.0 lets" in stack.logs()
    finally:
        stack.down()


@pytest.fixture
def https(closed_stack: Stack) -> Iterator[tuple[str, str]]:
    """Switch the closed hub to HTTPS, and yield its URL and the path of its certificate.

    The hub's settings are restored at the end.
    """
    folder = closed_stack.folder / "tls"
    make_certificate(folder)
    settings = closed_stack.folder / ".env"
    before = settings.read_text()
    settings.write_text(before.replace("\nCOMPOSE_PROFILES=\n", "\nCOMPOSE_PROFILES=tls\n"))
    closed_stack.compose("up", "-d")
    yield f"https://{DEFAULT_DOMAIN}:{closed_stack.settings['FARANDOLE_TLS_PORT']}", str(folder / "tls.crt")
    closed_stack.compose("rm", "--stop", "--force", "tls")
    settings.write_text(before)
    closed_stack.compose("up", "-d")
    closed_stack.wait_ready()


def test_https_with_an_own_certificate(closed_stack: Stack, https: tuple[str, str]) -> None:
    url, certificate = https
    session = local_session()
    session.verify = certificate

    def served() -> bool:
        try:
            return session.get(f"{url}/hub/login", timeout=5).ok
        except requests.ConnectionError:
            return False

    wait_until(served, AGAIN_SECONDS)
    token = next(cookie for cookie in session.cookies if cookie.name == "_xsrf")
    form = {"username": ADMIN, "password": closed_stack.passwords[ADMIN], "_xsrf": token.value}
    answer = session.post(f"{url}/hub/login", data=form, allow_redirects=False, timeout=30)
    assert answer.status_code == 302
    # The login leads to the hub, or to the user's own host if the user's server is running.
    assert answer.headers["Location"].startswith(("/", f"{url}/", url.replace("//", f"//{ADMIN}.", 1)))
    assert session.get(f"{url}/hub/home", allow_redirects=False, timeout=30).ok
    assert [cookie.name for cookie in session.cookies if not cookie.secure] == []
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains"
    # Browsers accept a __Host- cookie only from the host that it belongs to, so no user's page can set this cookie.
    assert "__Host-jupyterhub-hub-login" in {cookie.name for cookie in session.cookies}
    # The port serves nothing without TLS, not even the login page.
    with pytest.raises(requests.ConnectionError):
        local_session().get(url.replace("https", "http", 1), timeout=10)
