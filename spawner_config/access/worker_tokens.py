"""The tokens with which drivers connect to workers. Each token gives access to a single worker."""

from __future__ import annotations

import hmac
from typing import Any

from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from tornado.web import HTTPError

from spawner_config.access.sessions import mark_of
from spawner_config.roles import is_worker


class WorkerTokenHandler(APIHandler):  # type: ignore[misc]
    """``POST /hub/api/farandole/users/NAME/servers/WORKER/token`` returns the token for connections to a worker."""

    @needs_scope("access:servers")  # type: ignore[untyped-decorator]
    async def post(self, user_name: str, server_name: str) -> None:
        """Send the token; answer 403 if the worker belongs to another user, or 409 if it is not running."""
        user = self.find_user(user_name)
        if user is None or user is not self.current_user:
            raise HTTPError(403, "Only a user's own programs can get tokens for the user's workers.")
        spawner = user.spawners.get(server_name) if is_worker(server_name) else None
        if spawner is None or not spawner.active or spawner.orm_spawner.oauth_client is None:
            raise HTTPError(409, f"There is no running worker {server_name!r}.")
        self.finish({"token": drivers_token(self.settings["cookie_secret"], user, spawner)})


def drivers_token(secret: bytes, user: Any, spawner: Any) -> str:
    """Return the token with which drivers reach a running worker; it is valid until the worker stops.

    The token is derived from the hub's cookie secret and the hashed OAuth client secret of this start of the worker.
    All drivers therefore get the same token, and the hub does not have to store it in readable form.
    """
    client = spawner.orm_spawner.oauth_client
    token = hmac.new(secret, f"drivers of {client.identifier} {client.secret}".encode(), "sha256").hexdigest()
    if orm.APIToken.find(user.db, token) is None:
        scopes = [f"access:servers!server={user.name}/{spawner.name}"]
        user.new_api_token(token, note=f"Drivers of {spawner.name}", scopes=scopes, session_id=mark_of(spawner))
    return token


HANDLERS = [(r"/api/farandole/users/([^/]+)/servers/([^/]+)/token", WorkerTokenHandler)]
