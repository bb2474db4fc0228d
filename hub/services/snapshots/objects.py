"""The handler for the files of a repository, which receives, sends and refuses them."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from tornado.web import HTTPError, stream_request_body

from hub.services.snapshots.handlers import APPEND_ONLY, FileHandler
from hub.services.snapshots.repository import LARGEST, LOCKS, NAME, BusyError, NotStoredError
from hub.services.snapshots.upload import Upload


@stream_request_body
class ObjectHandler(FileHandler):
    """``repositories/USER/KIND/NAME``: a file whose name is the SHA-256 of its content.

    The body of a file that is refused is read nevertheless. Otherwise, the client would read no answer, but an error of
    its connection.
    """

    _upload: Upload | None = None
    _refused: NotStoredError | None = None

    async def prepare(self) -> None:
        """Find the user and the file, and begin to receive its content."""
        await super().prepare()
        owner, kind, name = self.path_args
        self.repository = await self.repository_of(owner)
        if not NAME.fullmatch(name):
            raise HTTPError(HTTPStatus.BAD_REQUEST, reason="The name of a file must be the SHA-256 of its content.")
        self._path = self.repository.path(kind, name)
        if self.request.method == "POST":
            self._begin(kind, name, self._admitted(kind))

    def check_kind(self, kind: str) -> None:
        """Raise HTTPError 403 if the client may not add files of a kind."""
        if kind == "keys":
            raise HTTPError(HTTPStatus.FORBIDDEN, reason="Only the hub adds keys.")

    def _admitted(self, kind: str) -> int:
        """Return the size of the content, which tornado then admits; raises HTTPError."""
        self.check_kind(kind)
        length = self.request.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise HTTPError(HTTPStatus.LENGTH_REQUIRED, reason="Send the header Content-Length.")
        if int(length) > LARGEST:
            raise HTTPError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason=f"A file may have at most {LARGEST} bytes.")
        connection: Any = self.request.connection
        connection.set_max_body_size(int(length))
        return int(length)

    def _begin(self, kind: str, name: str, size: int) -> None:
        try:
            self._upload = Upload(self.repository, kind, name, size, self.service.store.parts)
        except NotStoredError as exc:
            self._refused = exc

    def data_received(self, chunk: bytes) -> None:
        """Write a part of the content."""
        if self._upload is None or self._refused is not None:
            return
        try:
            self._upload.write(chunk)
        except NotStoredError as exc:
            self._refused = exc

    async def post(self, _owner: str, _kind: str, _name: str) -> None:
        """Keep the content that has arrived, or answer why it is refused."""
        try:
            if self._refused is not None:
                raise self._refused
            assert self._upload is not None
            await asyncio.to_thread(self._upload.commit)
        except NotStoredError as exc:
            raise HTTPError(exc.status, reason=str(exc)) from exc
        finally:
            if self._upload is not None:
                self._upload.close()

    async def get(self, _owner: str, _kind: str, _name: str) -> None:
        """Send the file."""
        await self.send(self._path)

    async def head(self, _owner: str, _kind: str, _name: str) -> None:
        """Send its size."""
        await self.send(self._path)

    async def delete(self, _owner: str, kind: str, _name: str) -> None:
        """Remove a lock; answer 403 for all other files."""
        if kind != LOCKS:
            raise HTTPError(HTTPStatus.FORBIDDEN, reason=APPEND_ONLY)
        try:
            self.repository.check_changeable()
            self._path.unlink()
        except BusyError as exc:
            raise HTTPError(exc.status, reason=str(exc)) from exc
        except FileNotFoundError as exc:
            raise HTTPError(HTTPStatus.NOT_FOUND, reason="The repository has no such file.") from exc

    def on_connection_close(self) -> None:
        """Forget a file whose sender has gone too early. `post` follows if all of the content has arrived."""
        super().on_connection_close()
        if self._upload is not None and not self._upload.is_complete:
            self._upload.close()
