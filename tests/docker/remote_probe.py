"""The origin probe for a hub in containers or pods. The hostile pages are on the server of the user `EVE`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.browser.origin_probe import EVE, OriginProbe, Victim, install
from tests.docker.remote_hub import ADMIN

if TYPE_CHECKING:
    from tests.docker.remote_hub import RemoteHub

USER = "grace"


def install_pages(hub: RemoteHub) -> None:
    """Install the hostile pages in the home of `EVE`, and stop her server so that its next start loads them."""
    with hub.kernel(EVE) as kernel:
        install(kernel)
    hub.browser(EVE).stop_notebook()


def start_servers(hub: RemoteHub) -> None:
    """Start the servers of `EVE` and her victims unless they are running."""
    for user in (EVE, USER, ADMIN):
        browser = hub.browser(user)
        if not browser.has_notebook():
            browser.start_notebook()


def probe_of(hub: RemoteHub, url: str = "") -> OriginProbe:
    """Return the origin probe for a hub at ``url``, which by default is the hub's own URL."""
    return OriginProbe(url or hub.url, hub.passwords[EVE])


def victims(hub: RemoteHub) -> list[Victim]:
    """Return the victims, which are a user and the administrator."""
    return [Victim(name=name, password=hub.password_of(name)) for name in (USER, ADMIN)]
