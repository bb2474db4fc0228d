"""What the service's pages share: the hub's client, who uses what, and what became of actions."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from hub.services.operators.usage import Measures, Usage, User, users_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Template

    from hub.services.operators.client import HubClient
    from spawner_config.operators.notices import Notices
    from spawner_config.operators.site import Site

USAGE_SECONDS = 5.0
"""How long metrics are not asked for again, so that several scrapers cost the hub no more than one."""
MOST_OUTCOMES = 100


class Measuring(Protocol):
    """Measures what servers and homes use."""

    async def of(self, models: Sequence[dict[str, Any]]) -> Measures:
        """Return the memory of the servers, and the homes, of the users in the hub's answer."""


class Outcomes:
    """What became of operators' actions, each until the page that follows its action shows it.

    Each outcome has a key in the address of that page, so that another tab of the operator does not show it.
    """

    def __init__(self) -> None:
        """Begin without outcomes."""
        self._texts: dict[str, tuple[str, str]] = {}

    def keep(self, operator: str, text: str) -> str:
        """Keep a text for an operator, and return its key. The oldest texts are forgotten if nobody looks at them."""
        key = secrets.token_urlsafe(8)
        self._texts[key] = (operator, text)
        while len(self._texts) > MOST_OUTCOMES:
            del self._texts[next(iter(self._texts))]
        return key

    def take(self, operator: str, key: str) -> str:
        """Return the operator's text with this key, and forget it; an empty string if there is none."""
        owner, text = self._texts.get(key, ("", ""))
        if owner != operator:
            return ""
        del self._texts[key]
        return text


@dataclass(kw_only=True)
class Office:
    """What all pages share; ``measuring`` is None where homes and memory cannot be measured."""

    client: HubClient
    site: Site
    template: Template
    origin: str
    """The origin of the hub's pages, or an empty string if all users share one."""
    notices: Notices
    measuring: Measuring | None = None
    outcomes: Outcomes = field(default_factory=Outcomes)
    _asking: asyncio.Task[Usage] | None = None
    _due: float = 0.0

    async def users(self, *, active: bool = False) -> list[User]:
        """Return who uses what: all users, or those with a server."""
        models = await self.client.users(active=active)
        measures = await self.measuring.of(models) if self.measuring else Measures(memory={}, homes={})
        return users_of(models, self.site, measures, datetime.now(UTC))

    async def usage(self) -> Usage:
        """Return what metrics show, at most `USAGE_SECONDS` old. Requests at the same time share one answer."""
        if self._asking is None or (self._asking.done() and time.monotonic() >= self._due):
            self._asking = asyncio.ensure_future(self._ask())
        # A scraper that hangs up must not cancel the answer for the others.
        return await asyncio.shield(self._asking)

    async def _ask(self) -> Usage:
        # An error is not kept: the next request asks again.
        self._due = 0.0
        users, total, gpus = await asyncio.gather(
            self.users(active=True), self.client.count_users(), self.client.gpus()
        )
        self._due = time.monotonic() + USAGE_SECONDS
        return Usage(users=users, total=total, gpus=gpus)
