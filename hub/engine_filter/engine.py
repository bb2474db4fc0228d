"""Sends requests to the engine behind the filter, over the engine's socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from yarl import URL

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession


class EngineError(Exception):
    """Raised when the engine answers a lookup with an error, such as 404; the client receives the same answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the engine answered {status}")
        self.status = status
        self.body = body


class Engine:
    """A client of the engine; ``session`` must be connected to the engine's socket."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def inspect(self, path: str) -> dict[str, Any]:
        """Return the engine's answer to a GET request for ``path``, such as '/networks/ours'; raises `EngineError`."""
        async with self._session.get(_url(path)) as answer:
            if answer.status != 200:
                raise EngineError(answer.status, await answer.read())
            found: dict[str, Any] = await answer.json()
            return found

    async def send(
        self, method: str, path: str, query: dict[str, str], body: dict[str, Any] | None, headers: dict[str, str]
    ) -> ClientResponse:
        """Send an admitted request to the engine; the caller reads the body of the response."""
        return await self._session.request(method, _url(path, query), json=body, headers=headers)


def _url(path: str, query: dict[str, str] | None = None) -> URL:
    # The values are encoded only here, so that the engine receives exactly the values that were checked.
    pairs = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in (query or {}).items())
    return URL(f"http://engine{path}{'?' if pairs else ''}{pairs}", encoded=True)
