"""The service's handlers: restic's REST protocol without a way to destroy something, and the key of a user.

https://restic.readthedocs.io/en/v0.14.0/100_references.html#rest-backend describes the protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tornado.iostream import StreamClosedError
from tornado.log import app_log
from tornado.web import Finish, HTTPError, RequestHandler

from hub.services.snapshots.restic import ResticError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hub.services.snapshots.access import Access
    from hub.services.snapshots.mirrors.folders import Mirrors
    from hub.services.snapshots.repository import Repository
    from hub.services.snapshots.store import Store

LISTS = "application/vnd.x.restic.rest.v2"
"""The type of lists with sizes."""
NAMES = "application/vnd.x.restic.rest.v1"
BINARY = "application/octet-stream"
RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")
CHUNK = 128 << 10
ANSWER_SECONDS = 3600.0
"""The longest time for an answer. A client that is gone may look like one that reads slowly."""
APPEND_ONLY = "Only the hub removes snapshots and their files. You can remove locks."


@dataclass(frozen=True, kw_only=True)
class Service:
    """What all handlers share.

    Attributes:
        store: the repositories of users.
        access: finds the users to whom tokens belong.
        mirrors: the mirrors of other hubs.
        mirror_access: finds the other hubs to which tokens belong.
        prefix: the path of the service.
    """

    store: Store
    access: Access
    mirrors: Mirrors
    mirror_access: Access
    prefix: str


class SnapshotsHandler(RequestHandler):
    """Base class of all handlers: it finds the user, and answers errors with a message in JSON."""

    user: str

    def initialize(self, service: Service) -> None:
        """Store what all handlers share."""
        self.service = service

    def set_default_headers(self) -> None:
        """Forbid browsers and proxies to keep or interpret the answers."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    async def prepare(self) -> None:
        """Find the user; raises HTTPError. Nothing else is read before, so that strangers learn nothing."""
        self.user = await self.access.user_of(self.request.headers.get("Authorization", ""))

    @property
    def access(self) -> Access:
        """Whose tokens give access."""
        return self.service.access

    def write_error(self, status_code: int, **options: Any) -> None:  # noqa: ARG002
        """Send the reason as JSON."""
        self.finish({"message": self._reason})

    async def repository_of(self, owner: str) -> Repository:
        """Return the repository of the user to whom the token belongs; raises HTTPError 404 for any other."""
        found = await self.service.store.of(owner) if owner == self.user else None
        if found is None:
            where = f"{self.service.prefix}open"
            reason = f"You have no such repository. POST {where} creates yours."
            raise HTTPError(HTTPStatus.NOT_FOUND, reason=reason)
        return found


class OpenHandler(SnapshotsHandler):
    """``POST open`` returns the address of the user's repository, and the password of the user's key."""

    async def post(self) -> None:
        """Create the repository if there is none."""
        try:
            repository = await self.service.store.open(self.user)
        except (ResticError, OSError) as exc:
            app_log.error("The repository of %r cannot be created: %s", self.user, exc)
            reason = "The hub cannot create your repository. The hub's log says why: ask the administrator."
            raise HTTPError(HTTPStatus.INTERNAL_SERVER_ERROR, reason=reason) from exc
        place = f"{self.service.prefix}repositories/{quote(self.user, safe='')}/"
        self.finish(
            {
                "repository": f"rest:{self.request.protocol}://{self.request.host}{place}",
                "password": self.service.store.password(self.user),
                "bytes": repository.used,
                "limit": repository.limit,
            }
        )


class RepositoryHandler(SnapshotsHandler):
    """``POST repositories/USER/?create=true``, with which `restic init` begins. Only the hub creates repositories."""

    async def post(self, owner: str) -> None:
        """Answer 403, or 404 if the user has no repository."""
        await self.repository_of(owner)
        raise HTTPError(HTTPStatus.FORBIDDEN, reason="The repository exists.")

    async def delete(self, owner: str) -> None:
        """Answer 403, or 404 if the user has no repository."""
        await self.repository_of(owner)
        raise HTTPError(HTTPStatus.FORBIDDEN, reason=APPEND_ONLY)


class ListHandler(SnapshotsHandler):
    """``GET repositories/USER/KIND/`` lists the files of a kind."""

    async def get(self, owner: str, kind: str) -> None:
        """Send names, and sizes to clients that accept the second version of the protocol."""
        repository = await self.repository_of(owner)
        with_sizes = LISTS in self.request.headers.get("Accept", "")
        self.set_header("Content-Type", LISTS if with_sizes else NAMES)

        def read() -> str:
            files = repository.files(kind)
            return json.dumps([{"name": name, "size": size} if with_sizes else name for name, size in files])

        async with turn(repository.lists):
            await self.finish(await asyncio.to_thread(read))


@asynccontextmanager
async def turn(limit: asyncio.Semaphore) -> AsyncIterator[None]:
    """Wait until a user's other answers leave room for this one, and send it; raises HTTPError 503 if it takes long."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS), limit:
            yield
    except StreamClosedError as exc:
        # A client that goes away is no error of the service.
        raise Finish from exc
    except TimeoutError as exc:
        reason = "You read too many files at the same time, or too slowly. Read fewer."
        raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, reason=reason) from exc


class FileHandler(SnapshotsHandler):
    """Base class of the handlers that send a file, or a range of it."""

    async def send(self, path: Path) -> None:
        """Send a file, for HEAD only its size; raises HTTPError 404 or 416."""
        try:
            file = path.open("rb")
        except FileNotFoundError as exc:
            raise HTTPError(HTTPStatus.NOT_FOUND, reason="The repository has no such file.") from exc
        with file:
            size = os.fstat(file.fileno()).st_size
            begin, end = self._range(size)
            self.set_header("Content-Type", BINARY)
            self.set_header("Content-Length", str(end - begin))
            if self.request.method == "HEAD":
                return
            file.seek(begin)
            while begin < end:
                if not (chunk := file.read(min(CHUNK, end - begin))):
                    raise HTTPError(HTTPStatus.INTERNAL_SERVER_ERROR, "%s has become shorter", path)
                begin += len(chunk)
                self.write(chunk)
                await self.flush()

    def _range(self, size: int) -> tuple[int, int]:
        header = self.request.headers.get("Range")
        if header is None:
            return 0, size
        found = RANGE.fullmatch(header)
        begin = int(found[1]) if found else size
        end = min(int(found[2]) + 1, size) if found and found[2] else size
        if begin >= end:
            self.set_header("Content-Range", f"bytes */{size}")
            raise HTTPError(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, reason=f"The file has {size} bytes.")
        self.set_status(HTTPStatus.PARTIAL_CONTENT)
        self.set_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        return begin, end


class ConfigHandler(FileHandler):
    """``repositories/USER/config``, which the hub writes once."""

    async def get(self, owner: str) -> None:
        """Send the configuration of the repository."""
        await self.send((await self.repository_of(owner)).folder / "config")

    async def head(self, owner: str) -> None:
        """Send its size."""
        await self.get(owner)

    async def post(self, owner: str) -> None:
        """Answer 403, or 404 if the user has no repository."""
        await self.repository_of(owner)
        raise HTTPError(HTTPStatus.FORBIDDEN, reason="The repository has a configuration, which nobody replaces.")

    async def delete(self, owner: str) -> None:
        """Answer 403, or 404 if the user has no repository."""
        await self.repository_of(owner)
        raise HTTPError(HTTPStatus.FORBIDDEN, reason=APPEND_ONLY)
