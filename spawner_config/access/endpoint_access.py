"""Who may call an endpoint besides its owner: tokens for programs elsewhere, and shares for other users of the hub.

JupyterHub's own API for tokens and shares needs scopes that also apply to notebook servers and to all tokens of a user,
so the programs of a user do not have them. These handlers apply to endpoints only.
"""

from __future__ import annotations

import json
from typing import Any

from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from sqlalchemy import event
from sqlalchemy.orm import Session
from tornado.web import HTTPError

from spawner_config.roles import is_endpoint

DAY = 86_400
MOST_DAYS = 366
MOST_SHARES = 100
"""Users with whom an endpoint can be shared."""


class EndpointHandler(APIHandler):  # type: ignore[misc]
    """A handler for the owner of an endpoint, who needs the scope ``servers``, which tokens of callers do not have."""

    def endpoint_of(self, user_name: str, server_name: str) -> orm.Spawner:
        """Return the endpoint's record; answer 403 to other users, and 404 if there is no such endpoint."""
        user = self.find_user(user_name)
        if user is None or user is not self.current_user:
            raise HTTPError(403, "Only the owner of an endpoint can change who may call it.")
        record = user.orm_spawners.get(server_name) if is_endpoint(server_name) else None
        if record is None:
            raise HTTPError(404, f"There is no endpoint {server_name!r}. Start one with %serve.")
        return record

    def body(self) -> dict[str, Any]:
        """Return the JSON object in the request's body, or an empty one."""
        found = self.get_json_body()
        if found is not None and not isinstance(found, dict):
            raise HTTPError(400, "The body must be a JSON object.")
        return found or {}


class TokensHandler(EndpointHandler):
    """``POST /hub/api/farandole/users/NAME/servers/ENDPOINT/tokens`` makes a token that can only call the endpoint."""

    @needs_scope("servers")  # type: ignore[untyped-decorator]
    def post(self, user_name: str, server_name: str) -> None:
        """Send a token that expires after ``days`` days. Its user can revoke it at /hub/token."""
        endpoint = self.endpoint_of(user_name, server_name)
        days = self.body().get("days", 30)
        if isinstance(days, bool) or not isinstance(days, int | float) or not 1 <= days * DAY <= MOST_DAYS * DAY:
            raise HTTPError(
                400,
                f"A token can be valid for one second to {MOST_DAYS} days, and not for {days!r} days. Choose another "
                "number with `--days`.",
            )
        note, seconds = f"Callers of {server_name}", int(days * DAY)
        token = endpoint.user.new_api_token(note=note, scopes=[_scope_of(endpoint)], expires_in=seconds)
        self.set_status(201)
        self.finish(json.dumps({"token": token, "days": days}))


class SharesHandler(EndpointHandler):
    """``/hub/api/farandole/users/NAME/servers/ENDPOINT/shares`` lists the users who may call an endpoint."""

    @needs_scope("servers")  # type: ignore[untyped-decorator]
    def get(self, user_name: str, server_name: str) -> None:
        """Send the names of the users with whom the endpoint is shared."""
        endpoint = self.endpoint_of(user_name, server_name)
        self.finish(json.dumps({"users": sorted(share.user.name for share in endpoint.shares if share.user)}))


class ShareHandler(EndpointHandler):
    """``/hub/api/farandole/users/NAME/servers/ENDPOINT/shares/USER`` shares an endpoint with a user of the hub."""

    @needs_scope("servers")  # type: ignore[untyped-decorator]
    def put(self, user_name: str, server_name: str, other_name: str) -> None:
        """Let another user call the endpoint."""
        endpoint, other = self.endpoint_of(user_name, server_name), self._other(other_name)
        if len(endpoint.shares) >= MOST_SHARES:
            raise HTTPError(400, f"An endpoint can be shared with {MOST_SHARES} users. Remove some first.")
        orm.Share.grant(self.db, endpoint, other, scopes=[_scope_of(endpoint)])
        self.set_status(204)

    @needs_scope("servers")  # type: ignore[untyped-decorator]
    def delete(self, user_name: str, server_name: str, other_name: str) -> None:
        """Let the other user no longer call the endpoint."""
        share = orm.Share.find(self.db, self.endpoint_of(user_name, server_name), share_with=self._other(other_name))
        if share is None:
            raise HTTPError(404, f"{server_name!r} is not shared with {other_name!r}.")
        self.db.delete(share)
        self.db.commit()
        self.set_status(204)

    def _other(self, name: str) -> orm.User:
        found = self.find_user(name)
        if found is None:
            raise HTTPError(404, f"There is no user {name!r} who has logged in here.")
        if found is self.current_user:
            raise HTTPError(400, "You own this endpoint, so you need no share.")
        user: orm.User = found.orm_user
        return user


def end_tokens_with_endpoints() -> None:
    """Delete the tokens of an endpoint's callers with the endpoint's record, from now on.

    Otherwise they would also work for the next endpoint with the same name. The database deletes the shares.
    """
    event.listen(Session, "before_flush", _end_tokens)


def _end_tokens(session: Session, *_: Any) -> None:
    for record in session.deleted:
        if isinstance(record, orm.Spawner) and is_endpoint(record.name):
            for token in session.query(orm.APIToken).filter_by(user_id=record.user_id):
                if token.scopes == [_scope_of(record)]:
                    session.delete(token)


def _scope_of(endpoint: orm.Spawner) -> str:
    """Return the scope of the tokens and shares that can only call an endpoint."""
    return f"access:servers!server={endpoint.user.name}/{endpoint.name}"


_ENDPOINT = r"/api/farandole/users/([^/]+)/servers/([^/]+)"
HANDLERS = [
    (rf"{_ENDPOINT}/tokens", TokensHandler),
    (rf"{_ENDPOINT}/shares", SharesHandler),
    (rf"{_ENDPOINT}/shares/([^/]+)", ShareHandler),
]
