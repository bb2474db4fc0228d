"""The largest number of named servers of a user, running or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spawner_config.roles import is_worker

if TYPE_CHECKING:
    from spawner_config.profiles.limits import Limits


class NamedServerLimit:
    """The hub's ``named_server_limit_per_user``: as many records as the user may have workers and notebook servers.

    The hub keeps the record of a server that its user did not remove, for example of a worker that was idle. Records of
    stopped workers are of no use to anyone, so they make room for new servers.
    """

    def __init__(self, limits: Limits) -> None:
        """Derive the number from the limits of the profiles."""
        self.most = limits.workers_per_user + limits.notebooks_per_user

    def __call__(self, handler: Any) -> int:
        """Return the number. JupyterHub calls this before it creates a server, and for the home page."""
        user = handler.find_user(handler.path_args[0]) if handler.path_args else handler.current_user
        if user is not None and len(user.orm_spawners) > self.most:
            forget_stopped_workers(user)
        return self.most


def forget_stopped_workers(user: Any) -> None:
    """Delete the records of the user's stopped workers. This deletes no files, because the home belongs to the user."""
    for name, record in list(user.orm_spawners.items()):
        # The hub has a spawner for each server that is active, or whose failed start it still has to report.
        if is_worker(name) and name not in user.spawners:
            user.db.delete(record)
    user.db.commit()
