"""The hub's requests about publications, which only notebook servers of publishers may send."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from farandole.datasets.versions.names import check_name
from farandole.exceptions import UsageError
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from tornado.web import HTTPError

from spawner_config.publishing.command import HOME
from spawner_config.publishing.publications import Order, PublicationError
from spawner_config.roles import is_notebook

if TYPE_CHECKING:
    from spawner_config.publishing.publications import Publications

LONGEST_PATH = 4096
LONGEST_SHOWN = 100


class PublicationHandler(APIHandler):  # type: ignore[misc]
    """``/hub/api/farandole/users/NAME/data-sets/DATASET`` publishes a folder of the user's home.

    The body of a POST request has the path of the ``folder`` in the user's servers, and the ``bytes`` of its files.
    It needs the scope ``servers``, which notebook servers have, and workers and endpoints do not.
    """

    def initialize(self, publications: Publications) -> None:
        """Store the publications of the hub."""
        self._publications = publications

    @needs_scope("servers")  # type: ignore[untyped-decorator]
    def post(self, user_name: str, name: str) -> None:
        """Begin a publication.

        Answer 403 to others, 400 for invalid values, and 409 while another one is copied or no notebook server runs.
        """
        user = self._publisher(user_name)
        try:
            check_name(name)
        except UsageError as exc:
            raise HTTPError(400, "%s", exc) from exc
        folder, size = self._body()
        try:
            spawner = _notebook_of(user)
            self._publications.begin(Order(user=user.name, spawner=spawner, name=name, folder=folder, bytes=size))
        except PublicationError as exc:
            raise HTTPError(409, "%s", exc) from exc
        self.set_status(202)
        self._send(user.name, name)

    @needs_scope("servers")  # type: ignore[untyped-decorator]
    def get(self, user_name: str, name: str) -> None:
        """Send the state of the user's last publication of a data set; answer 404 if the hub knows none."""
        self._send(self._publisher(user_name).name, name)

    def _publisher(self, user_name: str) -> Any:
        user = self.find_user(user_name)
        if user is None or user is not self.current_user or not self._publications.admits(user.name):
            raise HTTPError(403, "%r may not publish data sets; see FARANDOLE_DATA_PUBLISHERS.", user_name)
        return user

    def _body(self) -> tuple[str, int]:
        found = self.get_json_body()
        folder, size = (found.get("folder"), found.get("bytes")) if isinstance(found, dict) else (None, None)
        if not isinstance(folder, str) or not _is_below_home(folder):
            raise HTTPError(
                400, "%r is not a folder below your home, %s. Copy it there first.", str(folder)[:LONGEST_SHOWN], HOME
            )
        if type(size) is not int or not 0 <= size < 2**63:
            raise HTTPError(400, "'bytes' must be the size of the files in bytes.")
        return folder.removeprefix(f"{HOME}/"), size

    def _send(self, user: str, name: str) -> None:
        if (state := self._publications.state_of(user, name)) is None:
            raise HTTPError(404, "The hub knows no publication of %r by %s.", name, user)
        self.finish(json.dumps(state))


def _notebook_of(user: Any) -> Any:
    """Return the spawner of a running notebook server of the user. Its start has checked whose home it mounts."""
    for spawner in user.spawners.values():
        if is_notebook(spawner.name) and spawner.ready:
            return spawner
    raise PublicationError("your notebook server does not run; start it first")


def _is_below_home(folder: str) -> bool:
    path = PurePosixPath(folder)
    is_below = path.is_relative_to(HOME) and path != PurePosixPath(HOME) and ".." not in path.parts
    return is_below and folder.isprintable() and len(folder) < LONGEST_PATH


def handlers(publications: Publications) -> list[tuple[Any, ...]]:
    """Return the handlers for ``c.JupyterHub.extra_handlers``."""
    path = r"/api/farandole/users/([^/]+)/data-sets/([^/]+)"
    return [(path, PublicationHandler, {"publications": publications})]
