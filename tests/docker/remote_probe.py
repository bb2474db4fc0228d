"""The origin probe at a hub in containers or pods: its users, and the hostile pages on the server of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.origin_probe import EVE, OriginProbe, Victim, install
from tests.docker.remote_hub import ADMIN

if TYPE_CHECKING:
    from tests.docker.remote_hub import RemoteHub

USER = "grace"


def install_pages(hub: RemoteHub) -> None:
    """Add the hostile pages to the home of `EVE`; her server is stopped then."""
    with hub.kernel(EVE) as kernel:
        install(kernel)
    hub.browser(EVE).stop_notebook()


def start_servers(hub: RemoteHub) -> None:
    """Start the servers of all that have none."""
    for user in (EVE, USER, ADMIN):
        browser = hub.browser(user)
        if not browser.has_notebook():
            browser.start_notebook()


def probe_of(hub: RemoteHub, url: str = "") -> OriginProbe:
    """Return the probe of a hub, at another address if it is given."""
    return OriginProbe(url or hub.url, hub.passwords[EVE])


def victims(hub: RemoteHub) -> list[Victim]:
    """Return a user and the administrator."""
    return [Victim(name=name, password=hub.passwords[name]) for name in (USER, ADMIN)]
