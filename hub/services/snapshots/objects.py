"""The handler for the files of a repository, which receives, sends and refuses them."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import Any

from tornado.web import HTTPError, stream_request_body

from hub.services.snapshots.handlers import APPEND_ONLY, FileHandler, turn
from hub.services.snapshots.repository import LARGEST, LOCKS, NAME, BusyError, NotStoredError
from hub.services.snapshots.upload import Upload

LENGTH = re.compile(r"[0-9]{1,18}")


@stream_request_body
class ObjectHandler(FileHandler):
    """``repositories/USER/KIND/NAME``: a file whose name is the SHA-256 of its content.

    A request that is refused is read to its end nevertheless, whoever sends it. Otherwise, Tornado would close the
    connection: the sender of a file would read no answer, and the hub's proxy, which uses its connections again, would
    answer another user's request with 503.
    """

    _upload: Upload | None = None
    _refused: HTTPError | None = None

    async def prepare(self) -> None:
        """Find the user and the file, and begin to receive its content."""
        length = self._length()
        if length is not None:
            connection: Any = self.request.connection
            connection.set_max_body_size(length)
        try:
            await super().prepare()
            await self._find(*self.path_args)
            if self.request.method == "POST":
                self._begin(length)
        except HTTPError as exc:
            if self.request.method == "POST" and length is None:
                raise
            self._refused = exc

    def _check(self) -> None:
        """Raise the HTTPError with which the request is refused."""
        if self._refused is not None:
            raise self._refused

    def _length(self) -> int | None:
        """Return the size of the content that is read, or None if there is none, or too much."""
        length = self.request.headers.get("Content-Length", "")
        is_read = self.request.method == "POST" and LENGTH.fullmatch(length) and int(length) <= LARGEST
        return int(length) if is_read else None

    async def _find(self, owner: str, kind: str, name: str) -> None:
        self.repository = await self.repository_of(owner)
        if not NAME.fullmatch(name):
            raise HTTPError(HTTPStatus.BAD_REQUEST, reason="The name of a file must be the SHA-256 of its content.")
        self._path = self.repository.path(kind, name)

    def check_kind(self, kind: str) -> None:
        """Raise HTTPError 403 if the client may not add files of a kind."""
        if kind == "keys":
            raise HTTPError(HTTPStatus.FORBIDDEN, reason="Only the hub adds keys.")

    def _begin(self, length: int | None) -> None:
        """Begin to receive the content; raises HTTPError."""
        _, kind, name = self.path_args
        self.check_kind(kind)
        if length is None:
            if "Content-Length" in self.request.headers:
                reason = f"A file may have at most {LARGEST} bytes."
                raise HTTPError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason=reason)
            raise HTTPError(HTTPStatus.LENGTH_REQUIRED, reason="Send the header Content-Length.")
        try:
            self._upload = Upload(self.repository, kind, name, length, self.service.store.disk)
        except NotStoredError as exc:
            raise _refusal(exc) from exc

    def data_received(self, chunk: bytes) -> None:
        """Write a part of the content."""
        if self._upload is None or self._refused is not None:
            return
        try:
            self._upload.write(chunk)
        except NotStoredError as exc:
            self._refused = _refusal(exc)

    async def post(self, _owner: str, _kind: str, _name: str) -> None:
        """Keep the content that has arrived, or answer why it is refused."""
        try:
            self._check()
            assert self._upload is not None
            await asyncio.to_thread(self._upload.commit)
        except NotStoredError as exc:
            raise _refusal(exc) from exc
        finally:
            if self._upload is not None:
                self._upload.close()

    async def get(self, _owner: str, _kind: str, _name: str) -> None:
        """Send the file."""
        self._check()
        async with turn(self.repository.downloads):
            await self.send(self._path)

    async def head(self, _owner: str, _kind: str, _name: str) -> None:
        """Send its size."""
        self._check()
        await self.send(self._path)

    async def delete(self, _owner: str, kind: str, _name: str) -> None:
        """Remove a lock; answer 403 for all other files."""
        self._check()
        if kind != LOCKS:
            raise HTTPError(HTTPStatus.FORBIDDEN, reason=APPEND_ONLY)
        try:
            self.repository.check_changeable()
            self._path.unlink()
        except BusyError as exc:
            raise _refusal(exc) from exc
        except FileNotFoundError as exc:
            raise HTTPError(HTTPStatus.NOT_FOUND, reason="The repository has no such file.") from exc

    def on_connection_close(self) -> None:
        """Forget a file whose sender has gone too early. `post` follows if all of the content has arrived."""
        super().on_connection_close()
        if self._upload is not None and not self._upload.is_complete:
            self._upload.close()


def _refusal(reason: NotStoredError) -> HTTPError:
    return HTTPError(reason.status, reason=str(reason))
