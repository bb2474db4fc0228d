"""Checks that all kinds of login share: users must have distinct slugs, and servers' tokens must be recognizable."""

from __future__ import annotations

from typing import Any

from jupyterhub.auth import Authenticator

from spawner_config.access.sessions import delete_tokens, mark_token
from spawner_config.access.slugs import check_slug


class GuardedAuthenticator(Authenticator):  # type: ignore[misc]
    """Base class of the authenticators of all deployments."""

    async def run_post_auth_hook(self, handler: Any, auth_model: dict[str, Any]) -> Any:
        """Refuse a login if another user has the same slug, before the hub creates a user for a first login."""
        check_slug(self.db, auth_model["name"])
        return await super().run_post_auth_hook(handler, auth_model)

    async def refresh_user(self, user: Any, handler: Any = None, **options: Any) -> Any:
        """Raise HTTPError 403 if another user has the same slug, even if the user does not log in.

        Such users may exist because an administrator added them, or because they were created by a version without this
        check. The hub calls this method before it starts a server. A check during the start would be too late: when the
        start failed, the hub would clean up and could remove the other user's container.
        """
        check_slug(self.db, user.name)
        return await super().refresh_user(user, handler, **options)

    def pre_spawn_start(self, _user: Any, spawner: Any) -> None:
        """Mark the token of the server as created by the hub; JupyterHub calls this after it has created the token.

        This method must not be a coroutine. The hub sets ``slow_spawn_timeout`` to 0, so JupyterHub answers the request
        for a server as soon as the start has to wait. It has not checked the server options yet at this point, so it
        could no longer answer 400 if an option is invalid.
        """
        mark_token(spawner)

    def post_spawn_stop(self, user: Any, spawner: Any) -> None:
        """Delete the tokens of the server, including tokens that the hub no longer knows because it has restarted."""
        delete_tokens(user.db, spawner)
