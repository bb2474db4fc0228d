"""What every login of the hub has in common: names with a slug of their own, and marked tokens of servers."""

from __future__ import annotations

from typing import Any

from jupyterhub.auth import Authenticator

from spawner_config.access.sessions import delete_tokens, mark_token
from spawner_config.access.slugs import check_slug


class GuardedAuthenticator(Authenticator):  # type: ignore[misc]
    """Base of the authenticators of all deployments."""

    async def run_post_auth_hook(self, handler: Any, auth_model: dict[str, Any]) -> Any:
        """Refuse a login under a name whose slug another user has, before the hub creates its user."""
        check_slug(self.db, auth_model["name"])
        return await super().run_post_auth_hook(handler, auth_model)

    async def refresh_user(self, user: Any, handler: Any = None, **options: Any) -> Any:
        """Refuse such a user also without a login: one may be older than this rule, or added by an administrator.

        The hub calls this before each start of a server. A later refusal would come too late: the hub would clean up
        after the failed start, and find the container of the other user.
        """
        check_slug(self.db, user.name)
        return await super().refresh_user(user, handler, **options)

    def pre_spawn_start(self, _user: Any, spawner: Any) -> None:
        """Mark the token of the server; JupyterHub calls this once it has made it.

        Not a coroutine: JupyterHub would answer the request for a server before it has read the options, and a wrong
        option would not be refused.
        """
        mark_token(spawner)

    def post_spawn_stop(self, user: Any, spawner: Any) -> None:
        """Delete the tokens of the server, also if a restart of the hub came in between."""
        delete_tokens(user.db, spawner)
