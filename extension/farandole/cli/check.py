"""Checks a hub and a token before the token is kept."""

from __future__ import annotations

from typing import Any

from farandole.driver.workers.addresses import open_session
from farandole.driver.workers.client import HubClient
from farandole.exceptions import HubError, PermissionDeniedError

NEEDED = ("access:servers", "read:users", "servers")
"""The scopes without which a driver cannot start workers and connect to them."""
PERMISSIONS = " ".join(f"{scope}!user" for scope in NEEDED)
"""What to enter on the hub's Token page under *Permissions*. Users have these scopes only for their own servers."""
NOT_HERE = frozenset({401, 403, 404, 405})
"""What servers answer that do not know the address of a hub's API."""


async def check_hub(url: str) -> None:
    """Check that a JupyterHub answers at ``url``. No token is sent, because another server could keep it.

    Raises:
        HubUnreachableError: nothing answers at ``url``, or its certificate is not valid.
        HubError: what answers is no JupyterHub, or cannot process the request.
    """
    async with open_session() as session:
        try:
            about = await HubClient(url=url, token="", session=session).read("")
        except HubError as exc:
            if exc.status not in NOT_HERE:
                raise
            about = None
    if not isinstance(about, dict) or "version" not in about:
        raise _no_hub(url)


async def user_of(url: str, token: str) -> str:
    """Return the name of the token's user.

    Raises:
        HubUnreachableError, HubError: as in `check_hub`.
        PermissionDeniedError: the hub refuses the token, or the token lacks a scope.
    """
    await check_hub(url)
    async with open_session() as session:
        try:
            model = await HubClient(url=url, token=token, session=session).read("user")
        except PermissionDeniedError as exc:
            raise PermissionDeniedError(
                f"the hub refused the token. Make a new one at {url}/hub/token, and copy all of it.", status=exc.status
            ) from exc
    if not isinstance(model, dict) or "name" not in model:
        raise _no_hub(url)
    if missing := missing_scopes(model):
        raise PermissionDeniedError(
            f"the token lacks the scopes {', '.join(missing)}, so it cannot start workers. Make one at "
            f"{url}/hub/token: under Permissions, enter {PERMISSIONS}, and choose when it expires."
        )
    return str(model["name"])


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


def _no_hub(url: str) -> HubError:
    """Return the error for an address at which another server answers."""
    return HubError(
        f"there is no JupyterHub at {url}. Give the address of its pages in the browser, up to `/hub`, e.g. "
        "https://hub.example.org"
    )
