"""The origin probe at a hub on Kubernetes, and the Ingress with a wildcard host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.docker.remote_probe import install_pages, probe_of, start_servers, victims

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.kubernetes.site import Site


def test_a_page_of_another_user_steals_nothing(site: Site, chromium: Browser) -> None:
    install_pages(site)
    start_servers(site)
    for victim in victims(site):
        probe_of(site).assert_nothing_is_stolen(chromium, victim)


def test_the_api_server_takes_the_ingress_with_a_wildcard_host(site: Site) -> None:
    told = site.kubectl("apply", "--dry-run=server", f"--filename={site.folder / 'ingress.yaml'}")
    assert told.strip() == "ingress.networking.k8s.io/hub created (server dry run)"
