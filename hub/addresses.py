"""HTTP sessions that choose the address for a host name themselves, as browsers do for names below ``localhost``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

if TYPE_CHECKING:
    from collections.abc import Callable


class AddressAdapter(HTTPAdapter):
    """Connects to ``address_of(host)``, but keeps the URL's host in the header ``Host`` and in the TLS handshake."""

    def __init__(self, address_of: Callable[[str], str]) -> None:
        """Create an adapter; ``address_of`` maps a URL's host to an address, or returns the host unchanged."""
        super().__init__()
        self._address_of = address_of

    def get_connection_with_tls_context(self, request: Any, verify: Any, proxies: Any = None, cert: Any = None) -> Any:  # noqa: ARG002
        """Return a connection to the address of the request's host."""
        place, tls = self.build_connection_pool_key_attributes(request, verify, cert)
        name = str(place["host"])
        names = {"server_hostname": name, "assert_hostname": name} if place["scheme"] == "https" else {}
        return self.poolmanager.connection_from_host(
            **{**place, "host": self._address_of(name)}, pool_kwargs={**tls, **names}
        )

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request, with the URL's host and port in the header ``Host``."""
        request.headers["Host"] = urlsplit(str(request.url)).netloc
        try:
            return super().send(request, *args, **options)
        finally:
            # requests would otherwise select the cookies for a redirect by this header instead of by the new URL.
            del request.headers["Host"]


def session_to(address_of: Callable[[str], str]) -> requests.Session:
    """Return an HTTP session that connects to ``address_of(host)`` and ignores the environment's proxies."""
    session = requests.Session()
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, AddressAdapter(address_of))
    return session
