"""Checks a hub and a token before the token is kept."""

from __future__ import annotations

from typing import Any

from farandole.driver.workers.addresses import open_session
from farandole.driver.workers.client import HubClient
from farandole.exceptions import HubError, PermissionDeniedError

NEEDED = ("access:servers", "read:users", "servers")
"""The scopes without which a driver cannot start workers and connect to them."""


async def user_of(url: str, token: str) -> str:
    """Return the name of the token's user.

    Raises:
        HubUnreachableError: nothing answers at ``url``, or its certificate is not valid.
        HubError: what answers is no JupyterHub, or cannot process the request.
        PermissionDeniedError: the hub refuses the token, or the token lacks a scope.
    """
    async with open_session() as session:
        client = HubClient(url=url, token=token, session=session)
        await _check_hub(client, url)
        try:
            model = await client.read("user")
        except PermissionDeniedError as exc:
            raise PermissionDeniedError(
                f"the hub refused the token. Make a new one at {url}/hub/token, and copy all of it.", status=exc.status
            ) from exc
    if missing := missing_scopes(model):
        raise PermissionDeniedError(
            f"the token lacks the scopes {', '.join(missing)}, so it cannot start workers. Make one at {url}/hub/token "
            "with no scopes given, which has all of yours."
        )
    return str(model["name"])


async def _check_hub(client: HubClient, url: str) -> None:
    """Raise HubError or HubUnreachableError unless a JupyterHub answers at ``url``."""
    try:
        about = await client.read("")
    except HubError as exc:
        if exc.status not in {401, 403, 404, 405}:
            raise
        about = None
    if not isinstance(about, dict) or "version" not in about:
        raise HubError(
            f"there is no JupyterHub at {url}. Give the address of its pages in the browser, up to `/hub`, e.g. "
            "https://hub.example.org"
        )


def missing_scopes(model: dict[str, Any]) -> list[str]:
    """Return which of the needed scopes the hub's description of a token lacks.

    A scope that is limited to one server or to other users does not count.
    """
    granted = set()
    for scope in model.get("scopes", []):
        name, _, limit = str(scope).partition("!")
        if limit in {"", "user", f"user={model['name']}"}:
            granted.add(name)
    return [scope for scope in NEEDED if scope not in granted]
