"""The mirrors of other hubs, which reach them with accounts of their own: restic's REST protocol, append-only.

Another hub creates the repositories of its mirror, and only it has their password. It cannot remove anything but locks.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from tornado.web import HTTPError

from hub.services.snapshots.disk import full_disk, sync_folder
from hub.services.snapshots.handlers import ConfigHandler, ListHandler, RepositoryHandler, SnapshotsHandler
from hub.services.snapshots.objects import ObjectHandler
from hub.services.snapshots.repository import ExistsError, NotStoredError
from spawner_config.snapshots.mirrors import ACCOUNT

if TYPE_CHECKING:
    from hub.services.snapshots.access import Access
    from hub.services.snapshots.repository import Repository

NAME = re.compile(r"[a-z0-9_-]{1,63}")
"""The names of repositories, which are those of the other hub's folders."""


class MirrorHandler(SnapshotsHandler):
    """Base class of the handlers for other hubs. The token selects the mirror, so that no other one can be named."""

    @property
    def access(self) -> Access:
        """The tokens of other hubs."""
        return self.service.mirror_access

    async def repository_of(self, owner: str) -> Repository:
        """Return the repository with a name; raises HTTPError 400 for an invalid one."""
        if not NAME.fullmatch(owner):
            raise HTTPError(HTTPStatus.BAD_REQUEST, reason="Use 1 to 63 lower-case letters, digits, - and _ as a name.")
        return self.service.mirrors.of(self.user.removeprefix(ACCOUNT), owner)


class MirrorRepositoryHandler(MirrorHandler, RepositoryHandler):
    """``POST mirrors/NAME/?create=true``, with which `restic init` begins."""

    async def post(self, owner: str) -> None:
        """Create the folder. The key of a killed `restic init`, which wrote no configuration, is forgotten."""
        repository = await self.repository_of(owner)
        repository.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not repository.exists:
            for name, _ in repository.files("keys"):
                repository.path("keys", name).unlink(missing_ok=True)


class MirrorListHandler(MirrorHandler, ListHandler):
    """``GET mirrors/NAME/KIND/`` lists the files of a kind."""


class MirrorConfigHandler(MirrorHandler, ConfigHandler):
    """``mirrors/NAME/config``, which the other hub writes once, after its key."""

    async def post(self, owner: str) -> None:
        """Keep the configuration; answer 403 if there is one, and 507 if the disk is full."""
        repository = await self.repository_of(owner)
        check_created(repository)
        try:
            await asyncio.to_thread(write_once, repository.folder / "config", self.request.body)
        except NotStoredError as exc:
            raise HTTPError(exc.status, reason=str(exc)) from exc


class MirrorObjectHandler(MirrorHandler, ObjectHandler):
    """``mirrors/NAME/KIND/NAME``: a file whose name is the SHA-256 of its content."""

    def check_kind(self, kind: str) -> None:
        """Raise HTTPError 403 for further keys: restic tries 20 keys, and would no longer find the first one."""
        check_created(self.repository)
        if kind == "keys" and self.repository.exists:
            raise HTTPError(HTTPStatus.FORBIDDEN, reason="The repository has a key. Only an operator here adds more.")


def check_created(repository: Repository) -> None:
    """Raise HTTPError 404 if the folder of a repository does not exist."""
    if not repository.folder.is_dir():
        raise HTTPError(HTTPStatus.NOT_FOUND, reason="There is no such repository. `restic init` creates it.")


def write_once(path: Path, content: bytes) -> None:
    """Write a file that is on the disk when this returns, and replaces no other; raises `NotStoredError`."""
    with full_disk():
        descriptor, part = tempfile.mkstemp(prefix=".", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.link(part, path)
        except FileExistsError as exc:
            raise ExistsError("The repository has a configuration, which nobody replaces.") from exc
        finally:
            Path(part).unlink()
        sync_folder(path.parent)
