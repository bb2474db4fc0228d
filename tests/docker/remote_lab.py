"""A JupyterLab page for the administrator of a hub in containers or pods."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.browser.lab import Lab
from tests.docker.remote_hub import ADMIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.docker.remote_hub import RemoteHub

PATIENCE_MILLISECONDS = 120_000


@dataclass(frozen=True, kw_only=True)
class Account:
    """The URL of a hub and the administrator's password."""

    url: str
    password: str


@contextmanager
def administrators_lab(hub: RemoteHub, chromium: Browser) -> Iterator[Lab]:
    """Open a JupyterLab page for the hub's administrator."""
    with chromium.new_context(viewport={"width": 1400, "height": 900}) as context:
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        yield Lab(Account(url=hub.url, password=hub.passwords[ADMIN]), context.new_page())
