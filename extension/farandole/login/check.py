"""Checks a hub and a token before the token is kept."""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp

from farandole.driver.workers.addresses import open_session
from farandole.driver.workers.worker import REQUEST_TIMEOUT
from farandole.exceptions import HubError, HubUnreachableError, PermissionDeniedError

NEEDED = ("access:servers", "read:users", "servers")
"""The scopes without which a driver cannot start workers and connect to them."""


async def user_of(url: str, token: str) -> str:
    """Return the name of the token's user.

    Raises:
        HubUnreachableError: nothing answers at ``url``, or its certificate is not valid.
        HubError: what answers is no JupyterHub.
        PermissionDeniedError: the hub refuses the token, or the token lacks a scope.
    """
    async with open_session() as session:
        await check_hub(session, url)
        model = await _get(session, f"{url}/hub/api/user", token)
    if model is None:
        raise PermissionDeniedError(
            f"the hub refused the token. Make a new one at {url}/hub/token, and copy all of it.", status=403
        )
    if missing := missing_scopes(model):
        raise PermissionDeniedError(
            f"the token lacks the scopes {', '.join(missing)}, so it cannot start workers. Make one at {url}/hub/token "
            "with no scopes given, which has all of yours."
        )
    return str(model["name"])


async def check_hub(session: aiohttp.ClientSession, url: str) -> None:
    """Raise HubError or HubUnreachableError unless a JupyterHub answers at ``url``."""
    about = await _get(session, f"{url}/hub/api/", "")
    if not isinstance(about, dict) or "version" not in about:
        raise HubError(
            f"there is no JupyterHub at {url}. Give the address of its pages in the browser, up to `/hub`, e.g. "
            "https://hub.example.org"
        )


def missing_scopes(model: dict[str, Any]) -> list[str]:
    """Return which of the needed scopes the hub's description of a token lacks."""
    granted = {str(scope).partition("!")[0] for scope in model.get("scopes", [])}
    return [scope for scope in NEEDED if scope not in granted]


async def _get(session: aiohttp.ClientSession, url: str, token: str) -> Any:
    """Return the JSON at ``url``, or None if the server refuses the request or answers something else."""
    headers = {"Authorization": f"token {token}"} if token else {}
    try:
        async with session.get(url, headers=headers, timeout=REQUEST_TIMEOUT, allow_redirects=False) as answer:
            return await answer.json() if answer.ok and answer.content_type == "application/json" else None
    except aiohttp.ClientConnectorCertificateError as exc:
        raise HubUnreachableError(
            f"the certificate of {exc.host} is not valid: {_reason(exc.certificate_error)}. Ask the hub's operator to "
            "renew it. If an authority of your own has signed it, name its file in SSL_CERT_FILE."
        ) from exc
    except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
        raise HubUnreachableError(
            f"no hub answers at {url.partition('/hub/')[0]} ({exc or type(exc).__name__}). Check the address and the "
            "network."
        ) from exc


def _reason(error: Exception) -> str:
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else str(error)
