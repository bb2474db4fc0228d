"""Limits the number of a user's named servers, including stopped servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tornado.web import HTTPError

from spawner_config.roles import is_notebook

if TYPE_CHECKING:
    from spawner_config.profiles.limits import Limits


class NamedServerLimit:
    """The hub's ``named_server_limit_per_user``: the number of servers of all roles that a user may have.

    The hub keeps the record of a stopped server until its user removes it. Records of stopped workers and endpoints
    serve no purpose, so this class deletes them when a user has more records than the limit.
    """

    def __init__(self, limits: Limits) -> None:
        """Set the limit to the sum of the limits on workers, notebook servers and endpoints."""
        self.most = limits.servers_per_user

    def __call__(self, handler: Any) -> int:
        """Return the limit; JupyterHub calls this before it creates a named server, and for the home page."""
        user = handler.find_user(handler.path_args[0]) if handler.path_args else handler.current_user
        if user is not None and len(user.orm_spawners) > self.most:
            forget_stopped_servers(user)
        return self.most


def forget_stopped_servers(user: Any) -> None:
    """Delete the records of the user's stopped workers and endpoints. This deletes no files."""
    for name, record in list(user.orm_spawners.items()):
        if not is_notebook(name) and not (name in user.spawners and _is_in_use(user.spawners[name])):
            user.spawners.pop(name, None)
            user.db.delete(record)
    user.db.commit()


def _is_in_use(spawner: Any) -> bool:
    """Return whether the server is active, or its driver may still ask why its start failed.

    A start that was refused needs no record: the answer to its request gave the reason.
    """
    return spawner.active or (spawner._failed and not isinstance(spawner._failed, HTTPError))
