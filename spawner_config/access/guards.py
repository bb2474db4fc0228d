"""The checks that all kinds of login share: no two users have the same slug, and the hub marks servers' tokens."""

from __future__ import annotations

from typing import Any

from jupyterhub.auth import Authenticator

from spawner_config.access.sessions import delete_tokens, mark_token
from spawner_config.access.slugs import check_slug


class GuardedAuthenticator(Authenticator):  # type: ignore[misc]
    """Base of the authenticators of all deployments."""

    async def run_post_auth_hook(self, handler: Any, auth_model: dict[str, Any]) -> Any:
        """Refuse a login if another user has the slug of the name; this runs before the hub creates the new user."""
        check_slug(self.db, auth_model["name"])
        return await super().run_post_auth_hook(handler, auth_model)

    async def refresh_user(self, user: Any, handler: Any = None, **options: Any) -> Any:
        """Refuse a user whose slug another user has, even without a login.

        The user may have been created before this rule existed, or by an administrator. The hub calls this before it
        starts a server. If the start itself failed, the hub would clean up and remove the container of the other user.
        """
        check_slug(self.db, user.name)
        return await super().refresh_user(user, handler, **options)

    def pre_spawn_start(self, _user: Any, spawner: Any) -> None:
        """Mark the token of the server. JupyterHub calls this after it has created the token.

        This is not a coroutine, because JupyterHub would then answer the request for a server before it has read the
        options, and could no longer refuse a wrong option.
        """
        mark_token(spawner)

    def post_spawn_stop(self, user: Any, spawner: Any) -> None:
        """Delete the tokens of the server, even if the hub has restarted since the server started."""
        delete_tokens(user.db, spawner)
