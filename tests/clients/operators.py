"""The operators' page, as a test's browser shows it and submits its form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import requests

    from tests.clients.browser import Browser


class Hub(Protocol):
    """A hub at a URL."""

    url: str


def page_of(hub: Hub, browser: Browser) -> requests.Response:
    """Return the answer of the page to the user of a browser."""
    return browser._session.get(f"{hub.url}/services/operators/", timeout=30)


def row_of(text: str, user: str) -> str:
    """Return the HTML of the user's first row, which is that of the first server if the user has any."""
    found = re.search(rf'<th scope="row">{re.escape(user)}</th>.*?</tr>', text, re.DOTALL)
    assert found, text
    return found[0]


def act(hub: Hub, browser: Browser, action: str, *, origin: str = "", **fields: str) -> requests.Response:
    """Submit the page's form."""
    token = re.search(r'name="_xsrf" value="([^"]+)"', page_of(hub, browser).text)
    data = {"_xsrf": token[1] if token else "", **fields}
    headers = {"Origin": origin or hub.url}
    return browser._session.post(f"{hub.url}/services/operators/{action}", data=data, headers=headers, timeout=60)
