"""Who sends a request: the user to whom the hub token in the header ``Authorization`` belongs."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from tornado.web import HTTPError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

TOKEN = re.compile(r"(?:token|bearer) +([!-~]{1,512})", re.IGNORECASE)
BASIC = re.compile(r"basic +([A-Za-z0-9+/=]{1,4096})", re.IGNORECASE)
SECONDS = 60
"""How long an answer of the hub about a token is used. A token that ends gives access for at most this time."""
NO_TOKEN = "Send a token of the hub: `Authorization: token TOKEN`, or Basic with a user name and the token."

UNKNOWN = "The hub does not know this token. Send a valid one."


class TokenCheck(Protocol):
    """What this module needs of `jupyterhub.services.auth.HubAuth`."""

    def user_for_token(self, token: str, *, sync: bool) -> Awaitable[dict[str, Any] | None]:
        """Return the hub's model of the owner of a token, or None if the token is not valid."""

    def check_scopes(self, required_scopes: Iterable[str], user: dict[str, Any]) -> set[str]:
        """Return those of the scopes that the token has, or an empty set."""


class Access:
    """Finds the user of a request. Each token must have the scope of this service."""

    def __init__(
        self, make_auth: Callable[[], TokenCheck], scope: str, services: Mapping[str, str] | None = None
    ) -> None:
        """Ask the hub through what ``make_auth`` returns at the first request, and require ``scope``.

        The tokens belong to users, or else to ``services``, which are names with their tokens: JupyterHub goes on to
        accept a token of a service that its configuration has replaced.
        """
        self._make_auth = make_auth
        self._scope = scope
        self._services = services

    @cached_property
    def _auth(self) -> TokenCheck:
        return self._make_auth()

    async def user_of(self, authorization: str) -> str:
        """Return the owner's name; raises HTTPError 401, 403, or 503 while the hub does not answer."""
        name, token = _credentials(authorization)
        model = await self._model(token)
        kind = "user" if self._services is None else "service"
        if model is None or model.get("kind") != kind or name not in (None, model["name"]):
            raise HTTPError(HTTPStatus.UNAUTHORIZED, reason=UNKNOWN)
        if not self._auth.check_scopes({self._scope}, model):
            raise HTTPError(HTTPStatus.FORBIDDEN, reason=f"The token needs the scope {self._scope}.")
        if self._services is not None and not hmac.compare_digest(self._services.get(model["name"], ""), token):
            raise HTTPError(HTTPStatus.UNAUTHORIZED, reason=UNKNOWN)
        return str(model["name"])

    async def _model(self, token: str) -> dict[str, Any] | None:
        try:
            return await self._auth.user_for_token(token, sync=False)
        except HTTPError as exc:
            reason = "The hub does not answer. It may be restarting: try again in a minute."
            raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, "%s", exc, reason=reason) from exc


def _credentials(authorization: str) -> tuple[str | None, str]:
    """Return the user name, or None if the header has none, and the token."""
    if found := TOKEN.fullmatch(authorization):
        return None, found[1]
    found = BASIC.fullmatch(authorization)
    try:
        text = base64.b64decode(found[1], validate=True).decode() if found else ""
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    # A user name may contain a colon, a token does not.
    name, _, token = text.rpartition(":")
    if not token.isascii() or not token.isprintable() or not token:
        raise HTTPError(HTTPStatus.UNAUTHORIZED, reason=NO_TOKEN)
    return name, token
