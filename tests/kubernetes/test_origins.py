"""The origin probe for a hub on Kubernetes, and the Ingress with a wildcard host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.origin_probe import EVE, Victim
from tests.docker.remote_probe import install_pages, probe_of, start_servers, victims
from tests.kubernetes.tls_server import serving_https

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.kubernetes.site import Site


@pytest.fixture(scope="module", autouse=True)
def pages(site: Site) -> None:
    install_pages(site)


def stop_servers(site: Site) -> None:
    for user in (EVE, *(victim.name for victim in victims(site))):
        browser = site.browser(user)
        if browser.has_notebook():
            browser.stop_notebook()


# Only for `make release`: the other deployments run the probe for each change, over HTTP and over TLS.
@pytest.mark.release
def test_a_page_of_another_user_steals_nothing_over_http(site: Site, chromium: Browser) -> None:
    start_servers(site)
    for victim in victims(site):
        probe_of(site).assert_nothing_is_stolen(chromium, victim)
    stop_servers(site)


@pytest.mark.release
def test_a_page_of_another_user_steals_nothing_over_tls(site: Site, chromium: Browser, tmp_path: Path) -> None:
    stop_servers(site)
    with serving_https(site, tmp_path / "tls") as url:
        probe = probe_of(site, url)
        for user in (Victim(name=EVE, password=site.passwords[EVE]), *victims(site)):
            probe.start_server(chromium, user, "cpu")
        for victim in victims(site):
            probe.assert_nothing_is_stolen(chromium, victim)
    # The hub has its previous URL again, for which these servers are not configured.
    stop_servers(site)


def test_the_api_server_takes_the_ingress_with_a_wildcard_host(site: Site) -> None:
    told = site.kubectl("apply", "--dry-run=server", f"--filename={site.folder / 'ingress.yaml'}")
    assert told.strip() == "ingress.networking.k8s.io/hub created (server dry run)"
