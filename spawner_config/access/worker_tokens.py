"""Tokens with which drivers reach workers. Each token gives access to one worker and to nothing else."""

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
    """``POST /hub/api/farandole/users/NAME/servers/WORKER/token``: the token of drivers for a worker."""

    @needs_scope("access:servers")  # type: ignore[untyped-decorator]
    async def post(self, user_name: str, server_name: str) -> None:
        """Answer with the token; 403 for workers of others, 409 if the worker is not running."""
        user = self.find_user(user_name)
        if user is None or user is not self.current_user:
            raise HTTPError(403, "Only a user's own programs lead the user's workers.")
        spawner = user.spawners.get(server_name) if is_worker(server_name) else None
        if spawner is None or not spawner.active or spawner.orm_spawner.oauth_client is None:
            raise HTTPError(409, f"There is no running worker {server_name!r}.")
        self.finish({"token": drivers_token(self.settings["cookie_secret"], user, spawner)})


def drivers_token(secret: bytes, user: Any, spawner: Any) -> str:
    """Return the token of drivers for a running worker; the token is valid until the worker stops.

    The token is derived from the hub's secret and the salted secret that the worker got at its start. All drivers
    therefore share one token, and the hub stores no token in readable form.
    """
    client = spawner.orm_spawner.oauth_client
    token = hmac.new(secret, f"drivers of {client.identifier} {client.secret}".encode(), "sha256").hexdigest()
    if orm.APIToken.find(user.db, token) is None:
        scopes = [f"access:servers!server={user.name}/{spawner.name}"]
        user.new_api_token(token, note=f"Drivers of {spawner.name}", scopes=scopes, session_id=mark_of(spawner))
    return token


HANDLERS = [(r"/api/farandole/users/([^/]+)/servers/([^/]+)/token", WorkerTokenHandler)]
