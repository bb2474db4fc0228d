"""The service's requests to the hub's REST API, with the service's own token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPResponse

PAGE = 200
PAGES = "application/jupyterhub-pagination+json"
SECONDS = 20.0


class HubRefusedError(RuntimeError):
    """Raised when the hub refuses a request or does not answer; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class HubClient:
    """A client of the hub's REST API at ``url``."""

    url: str
    token: str

    async def users(self, *, active: bool = False) -> list[dict[str, Any]]:
        """Return the models of all users, or of those with a server, with those servers that are not stopped."""
        found: list[dict[str, Any]] = []
        offset: int | None = 0
        state = "&state=active" if active else ""
        while offset is not None:
            answer = await self._ask("GET", f"/users?limit={PAGE}&offset={offset}{state}")
            found += answer["items"]
            offset = (answer["_pagination"]["next"] or {}).get("offset")
        return found

    async def count_users(self) -> int:
        """Return the number of all users, which the hub sends with each page of its list."""
        return int((await self._ask("GET", "/users?limit=1"))["_pagination"]["total"])

    async def gpus(self) -> dict[str, dict[str, Any]]:
        """Return the GPUs of each class; empty if this hub does not count GPUs."""
        answer = await self._fetch("GET", "/farandole/gpus")
        found: dict[str, dict[str, Any]] = {} if answer.code == HTTPStatus.NOT_FOUND else _content(answer)
        return found

    async def stop(self, user: str, server: str) -> None:
        """Stop a server; raises `HubRefusedError` with the hub's reason."""
        where = f"servers/{quote(server, safe='')}" if server else "server"
        await self._ask("DELETE", f"/users/{quote(user, safe='')}/{where}")

    async def _ask(self, method: str, path: str) -> Any:
        return _content(await self._fetch(method, path))

    async def _fetch(self, method: str, path: str) -> HTTPResponse:
        headers = {"Authorization": f"token {self.token}", "Accept": PAGES}
        try:
            return await AsyncHTTPClient().fetch(
                f"{self.url}{path}", method=method, headers=headers, request_timeout=SECONDS, raise_error=False
            )
        except (HTTPClientError, OSError) as exc:
            raise HubRefusedError(f"the hub does not answer ({exc})") from exc


def _content(answer: HTTPResponse) -> Any:
    try:
        content = json.loads(answer.body) if answer.body else None
    except ValueError as exc:
        # A proxy before the hub answers in HTML.
        raise HubRefusedError(f"the hub answered HTTP {answer.code}") from exc
    if answer.code >= HTTPStatus.BAD_REQUEST:
        raise HubRefusedError(str((content or {}).get("message") or f"the hub answered HTTP {answer.code}"))
    return content
