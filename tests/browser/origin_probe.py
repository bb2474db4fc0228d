"""Tests whether a page on one user's server can steal from another user who opens that page.

The tests of all deployments use this probe. They need a hub over HTTP or HTTPS, and a browser that resolves the names
of the hub's hosts.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.browser.lab import open_page, wait_for_server
from tests.clients.hosts import url_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.clients.kernel import RemoteKernel

EVE = "eve"
SOURCES = Path(__file__).with_name("probe")
APP = SOURCES / "app.py"
APP_SERVER = "serve-app"
ENDPOINT_PAGE = "serve-pages/evil/page"
CONFIG = """import sys
sys.path.insert(0, {home!r})
c.ServerApp.jpserver_extensions = {{"evil": True}}
"""
INSTALL = """
import json
from pathlib import Path
for name, text in json.loads({files!r}).items():
    path = Path.home() / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("HOME", str(Path.home())))
"""
SCRIPTS_OF_LAB = "**/static/lab/**"
SECONDS = 240
SERVERS = """async (user) => {
  const headers = {"X-XSRFToken": window.jhdata.xsrf_token};
  const answer = await fetch(`/hub/api/users/${user}?include_stopped_servers`, {headers});
  const servers = (await answer.json()).servers;
  return Object.entries(servers).map(([name, server]) => `${name} since ${server.started}`).sort();
}"""


def install(kernel: RemoteKernel) -> None:
    """Install the hostile pages on a kernel's server, which serves them after its next start."""
    kernel.execute(INSTALL.format(files=json.dumps(hostile_files())), deadline=60)


def hostile_files() -> dict[str, str]:
    """Return the texts of the hostile files by their paths in a home. `INSTALL` writes them."""
    files = {name: (SOURCES / name).read_text(encoding="utf-8") for name in ("evil.py", "page.html")}
    return {**files, ".jupyter/jupyter_server_config.py": CONFIG.format(home="HOME")}


@contextmanager
def scripts_of_lab_blocked(context: BrowserContext) -> Iterator[None]:
    """Block JupyterLab's scripts, which take seconds of processor time each time they are loaded.

    The attempts open JupyterLab's pages about twenty times. The secrets are in the pages and their cookies.
    """
    context.route(SCRIPTS_OF_LAB, lambda route: route.abort())
    try:
        yield
    finally:
        context.unroute(SCRIPTS_OF_LAB)


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A user with a running server, in whose browser the page of `EVE` is opened."""

    name: str
    password: str


class OriginProbe:
    """Attempts to steal from users of the hub at ``url``. ``password`` is that of `EVE`, whose server is running.

    ``page`` is the path of the hostile page below her servers, such as `ENDPOINT_PAGE` on an endpoint.
    """

    def __init__(self, url: str, password: str, page: str = "evil/page") -> None:
        self.url = url
        self.password = password
        self.page_url = url_of(url, f"/user/{EVE}/{page}")

    def where(self, victim: Victim) -> dict[str, str]:
        """Return the addresses and names that the page needs for its attempts."""
        server = urlsplit(url_of(self.url, f"/user/{victim.name}/"))
        return {
            "hub": self.url,
            "victim": f"{server.scheme}://{server.netloc}",
            "user": victim.name,
            "eve": EVE,
            "password": self.password,
        }

    def steal(self, page: Page, victim: Victim, *names: str) -> dict[str, list[str]]:
        """Open the hostile page in the victim's browser, and return what each attempt has stolen."""
        self._open(page)
        return self._attempt(page, victim, *names)

    def _open(self, page: Page) -> None:
        page.goto(self.page_url)
        hostile, consent = page.get_by_text("A page of eve's."), page.get_by_role("button", name="Authorize")
        expect(hostile.or_(consent)).to_be_visible()
        if consent.is_visible():
            # The first visit of another user's endpoint needs the visitor's consent.
            consent.click()
        expect(hostile).to_be_visible()

    def _attempt(self, page: Page, victim: Victim, *names: str) -> dict[str, list[str]]:
        with scripts_of_lab_blocked(page.context):
            stolen: dict[str, list[str]] = page.evaluate(
                "([where, names]) => probe(where, names)", [self.where(victim), list(names) or None]
            )
        return {name: loot for name, loot in stolen.items() if loot}

    def user_of(self, page: Page) -> str:
        """Return the name of the user who is logged in at the hub."""
        page.goto(f"{self.url}/hub/home")
        return str(page.evaluate("window.jhdata.user"))

    def servers_of(self, page: Page, victim: Victim) -> list[str]:
        """Return the names and start times of the victim's servers at the hub, whether running or stopped."""
        page.goto(f"{self.url}/hub/home")
        servers: list[str] = page.evaluate(SERVERS, victim.name)
        return servers

    def acts_at_app(self, page: Page, victim: Victim) -> list[str]:
        """Return what requests have changed at the victim's endpoint that runs `APP`."""
        page.goto(url_of(self.url, f"/user/{victim.name}/{APP_SERVER}/"))
        acts: list[str] = json.loads(page.locator("body").inner_text())["acts"]
        return acts

    @contextmanager
    def logged_in(self, chromium: Browser, victim: Victim) -> Iterator[tuple[BrowserContext, Page]]:
        """Log in as the victim in a new browser context, and yield the context and its page."""
        with chromium.new_context() as context:
            context.set_default_timeout(SECONDS * 1000)
            page = context.new_page()
            self._log_in(page, victim)
            yield context, page

    def start_server(self, chromium: Browser, user: Victim, profile: str) -> None:
        """Start a user's server from the spawn page."""
        with self.logged_in(chromium, user) as (_, page):
            page.goto(f"{self.url}/hub/spawn/{user.name}")
            page.locator(f"input[type=radio][value={profile}]").check()
            page.get_by_role("button", name="Start", exact=True).click()
            wait_for_server(page, f"{url_of(self.url, f'/user/{user.name}/lab')}**", SECONDS)

    def assert_nothing_is_stolen(self, chromium: Browser, victim: Victim) -> None:
        """Run all attempts, and check that they steal nothing and that the victim can still work."""
        with self.logged_in(chromium, victim) as (context, page):
            servers = self.servers_of(page, victim)
            for attempt in ("login_as_eve", "spawn_by_navigation", "logout"):
                assert self.steal(page, victim, attempt) == {}
                assert self.user_of(page) == victim.name, attempt
                assert self.servers_of(page, victim) == servers, attempt
            assert self.steal(page, victim) == {}
            if self.url.startswith("http:"):
                # Over plain HTTP, the page can set cookies that log the victim out and prevent logins.
                self._delete_shared_cookies(context)
                self._log_in(page, victim)
            self._assert_normal_use(page, victim)
            self._assert_no_login_on_a_users_host(page)
            self._open(page)
            page.evaluate("domain => bomb(domain)", urlsplit(self.url).hostname)
            # The hub refuses the victim's requests until the cookies are deleted, but nothing is stolen.
            assert self._attempt(page, victim, "hub_tokens", "server_tokens", "iframes") == {}
            self._delete_shared_cookies(context)
            self._assert_normal_use(page, victim)

    def _log_in(self, page: Page, victim: Victim) -> None:
        page.goto(f"{self.url}/hub/login")
        page.get_by_label("Username:").fill(victim.name)
        page.get_by_label("Password:", exact=True).fill(victim.password)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(lambda url: "/hub/login" not in url)

    def _delete_shared_cookies(self, context: BrowserContext) -> None:
        """Delete the cookies that are valid for all hosts of the hub."""
        context.clear_cookies(domain=f".{urlsplit(self.url).hostname}")

    def _assert_normal_use(self, page: Page, victim: Victim) -> None:
        assert self.user_of(page) == victim.name
        panels = "#jp-top-panel, #top-panel-wrapper, #jp-main-dock-panel"
        open_page(page, f"{self.url}/hub/user-redirect/lab", panels, SECONDS)
        page.wait_for_url(f"{url_of(self.url, f'/user/{victim.name}/lab')}**")

    def _assert_no_login_on_a_users_host(self, page: Page) -> None:
        host = urlsplit(self.page_url)
        login = f"{host.scheme}://{host.netloc}/hub/login"
        with page.expect_response(login) as info:
            page.goto(login)
        assert (info.value.status, info.value.header_value("location")) == (302, f"{self.url}/hub/login")
        page.goto(self.page_url)
        form = {"username": EVE, "password": self.password}
        with page.expect_response(login) as info:
            page.evaluate("form => fetch('/hub/login', {method: 'POST', body: new URLSearchParams(form)})", form)
        assert info.value.status == 421
        assert info.value.header_value("set-cookie") is None
