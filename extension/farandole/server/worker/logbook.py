"""Keeps the latest log messages of this server for its user, because only admins can read server logs on the hub."""

from __future__ import annotations

import logging
import re
from typing import Any

from farandole.times import time_text

KEPT_BYTES = 500_000
LOG_CHUNK_BYTES = 100_000
FORMAT = "[%(levelname).1s %(asctime)s %(name)s] %(message)s"
STATUS_REQUEST = re.compile(r"200 GET \S*/farandole/(look|log)\b")
"""Matches log lines for requests that drivers and panels send every few seconds. The log book omits these lines."""


class ZonedFormatter(logging.Formatter):
    """A formatter whose times name their zone, because the zone of the server may not be that of its user."""

    def formatTime(self, record: logging.LogRecord, _datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        """Return the time of a record as text."""
        return time_text(record.created, precise=True)


class LogBook(logging.Handler):
    """A logging handler that keeps the last `KEPT_BYTES` of the log. Offsets count bytes since the server started."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(ZonedFormatter(FORMAT))
        self._kept = bytearray()
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Append a log record, unless it is about a status request."""
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - formatting a wrong call may raise anything, which must not reach the caller
            self.handleError(record)
            return
        if STATUS_REQUEST.search(text):
            return
        self._kept += (text + "\n").encode("utf-8", "replace")
        if (beyond := len(self._kept) - KEPT_BYTES) > 0:
            cut = self._kept.find(b"\n", beyond - 1) + 1
            del self._kept[:cut]
            self._lost += cut

    def read(self, offset: int) -> dict[str, Any]:
        """Return a chunk of the log with ``offset``, ``next``, ``size`` and ``text``.

        A negative offset counts from the end.
        """
        self.acquire()  # a message that another thread logs during the read could delete the oldest lines
        try:
            size = self._lost + len(self._kept)
            begin = min(max(offset if offset >= 0 else size + offset, self._lost), size)
            data = whole_characters(bytes(self._kept[begin - self._lost :][:LOG_CHUNK_BYTES]))
        finally:
            self.release()
        return {"offset": begin, "next": begin + len(data), "size": size, "text": data.decode("utf-8", "replace")}


def whole_characters(data: bytes) -> bytes:
    """Remove an incomplete character from the end of UTF-8 data."""
    for back, byte in enumerate(data[:-5:-1], start=1):
        if byte < 0x80:
            break
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
    return data
