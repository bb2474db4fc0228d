"""The hub's requests about notices: users read theirs, and a stop by an administrator leaves one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.apihandlers.users import UserServerAPIHandler, default_handlers
from jupyterhub.user import User
from tornado.web import HTTPError

from spawner_config.operators.notices import Notice, Notices

if TYPE_CHECKING:
    from collections.abc import Callable


class NoticesHandler(APIHandler):  # type: ignore[misc]
    """``GET /hub/api/farandole/notices`` returns the notices of the user to whom the login or token belongs."""

    def initialize(self, notices_of: Callable[[Any], list[Notice]]) -> None:
        """Store the function that returns a user's notices, newest first."""
        self._notices_of = notices_of

    async def get(self) -> None:
        """Send the notices; answer 403 to services, and to tokens that do not have the scope ``read:users``."""
        user = self.current_user
        if not isinstance(user, User) or not self.has_scope(f"read:users!user={user.name}"):
            raise HTTPError(403, "Log in, or send a user's token that has the scope read:users.")
        notices = [{**asdict(notice), "at": notice.at.timestamp()} for notice in self._notices_of(user)]
        self.finish(json.dumps(notices))


class ServerHandler(UserServerAPIHandler):  # type: ignore[misc]
    """JupyterHub's requests about a server. Its owner gets a notice if another user stops it, such as an administrator.

    Services leave no notice here: the operators' service adds those with the operator's reason itself.
    """

    _withdrawals: ClassVar[set[asyncio.Task[None]]] = set()
    """The tasks that withdraw notices. The event loop itself keeps only weak references to tasks."""

    def initialize(self, notices: Notices) -> None:
        """Store the notices of all users."""
        self._notices = notices

    async def stop_single_user(self, user: User, server_name: str = "") -> Any:
        """Stop a server that runs, or whose start JupyterHub has just cancelled.

        JupyterHub does not call this again while the server is stopping.
        """
        spawner = user.spawners[server_name]
        stopping = await super().stop_single_user(user, server_name)
        # JupyterHub raises no error if a stop fails. The server is then ready again.
        if isinstance(self.current_user, User) and self.current_user.name != user.name and not spawner.ready:
            notice = Notice(by=self.current_user.name, at=datetime.now(UTC), text="", servers=(server_name,))
            await self._change(self._notices.add, user.name, notice, failure="kept")
            # A slow stop still goes on. The callback precedes the removal of the spawner, which waits for the same.
            stopping.add_done_callback(lambda _: self._end_stop(spawner, user.name, notice))
        return stopping

    def _end_stop(self, spawner: Any, owner: str, notice: Notice) -> None:
        """Withdraw the notice about a stop that has failed."""
        if spawner.ready:
            withdraw = partial(self._notices.correct, stopped=())
            task = asyncio.create_task(self._change(withdraw, owner, notice, failure="withdrawn"))
            self._withdrawals.add(task)
            task.add_done_callback(self._withdrawals.discard)

    async def _change(self, change: Callable[[str, Notice], None], owner: str, notice: Notice, *, failure: str) -> None:
        try:
            # A thread waits for the disk and for the operators' service, which changes notices as well.
            await asyncio.to_thread(change, owner, notice)
        except OSError as exc:
            # The server is stopping already, so a full disk must not turn the answer into an error.
            self.log.error("The notice for %r about a stop by %r is not %s: %s", owner, notice.by, failure, exc)


def server_rules(notices: Notices) -> list[tuple[Any, ...]]:
    """Return the rules that replace those of JupyterHub for the same paths."""
    paths = [path for path, handler, *_ in default_handlers if handler is UserServerAPIHandler]
    return [(path, ServerHandler, {"notices": notices}) for path in paths]
