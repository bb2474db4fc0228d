"""Tests that the page of another user steals nothing if the hub runs in containers, over HTTP and over TLS.

Also tests that the hub does not start if other machines can reach it and FARANDOLE_DOMAIN is not set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spawner_config.origins.hosts import DEFAULT_DOMAIN
from tests.browser.origin_probe import EVE, OriginProbe, Victim
from tests.docker.ports import HTTPS, quiet_port
from tests.docker.remote_probe import install_pages, probe_of, start_servers, victims
from tests.docker.stack import fill_in, make_certificate, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.docker.stack import Stack


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run a hub for this module, because its tests change the hub's settings."""
    settings = {"FARANDOLE_TLS_BIND": "127.0.0.1", "FARANDOLE_TLS_PORT": str(quiet_port(HTTPS))}
    with running(tmp_path_factory.mktemp("origins"), subnets="10.214.64.0/20", **settings) as stack:
        install_pages(stack)
        yield stack


# The probes of this deployment are release tests. `.ci/run` probes a hub without containers, in
# tests/browser/test_origin_probe.py.
@pytest.mark.release
def test_a_page_of_another_user_steals_nothing_over_http(own_stack: Stack, chromium: Browser) -> None:
    start_servers(own_stack)
    for victim in victims(own_stack):
        probe_of(own_stack).assert_nothing_is_stolen(chromium, victim)


@pytest.fixture(scope="module")
def probe_over_tls(own_stack: Stack, chromium: Browser) -> OriginProbe:
    """Switch the hub to TLS and start the servers of all users."""
    users = [Victim(name=EVE, password=own_stack.passwords[EVE]), *victims(own_stack)]
    for user in users:
        browser = own_stack.browser(user.name)
        if browser.has_notebook():
            browser.stop_notebook()
    make_certificate(own_stack.folder / "tls")
    env = own_stack.folder / ".env"
    env.write_text(fill_in(env.read_text(), {"COMPOSE_PROFILES": "tls"}))
    own_stack.compose("up", "-d", "--wait")
    probe = probe_of(own_stack, f"https://{DEFAULT_DOMAIN}:{own_stack.settings['FARANDOLE_TLS_PORT']}")
    for user in users:
        probe.start_server(chromium, user, "cpu")
    return probe


@pytest.mark.release
@pytest.mark.parametrize("victim", [0, 1], ids=["user", "administrator"])
def test_a_page_of_another_user_steals_nothing_over_tls(
    own_stack: Stack, probe_over_tls: OriginProbe, chromium: Browser, victim: int
) -> None:
    probe_over_tls.assert_nothing_is_stolen(chromium, victims(own_stack)[victim])


def test_a_hub_for_other_machines_without_a_domain_does_not_start(own_stack: Stack) -> None:
    refused = own_stack.compose(
        "run", "--rm", "--no-deps", "--env", "FARANDOLE_BIND=0.0.0.0", "--env", "FARANDOLE_DOMAIN=", "hub", check=False
    )
    assert refused.returncode != 0
    assert "FARANDOLE_DOMAIN is not set, and FARANDOLE_BIND=0.0.0.0 lets" in refused.stdout + refused.stderr
