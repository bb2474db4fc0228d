"""The last words of this server, for its user: the hub keeps a server's log where only the admin can read it."""

from __future__ import annotations

import logging
import re
from typing import Any

KEPT_BYTES = 500_000
PART_BYTES = 100_000
FORMAT = "[%(levelname).1s %(asctime)s %(name)s] %(message)s"


LOOKED = re.compile(r"200 GET \S*/farandole/(look|log)\b")
"""That somebody looks at this server, every few seconds, is no news of it."""


class LogBook(logging.Handler):
    """Keeps the last `KEPT_BYTES` of what is logged; places in it are numbers of bytes since the server started."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
        self._kept = bytearray()
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record in."""
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - the arguments of a careless call fail in any way, and not for the caller
            self.handleError(record)
            return
        if LOOKED.search(text):
            return
        self._kept += (text + "\n").encode("utf-8", "replace")
        if (beyond := len(self._kept) - KEPT_BYTES) > 0:
            cut = self._kept.find(b"\n", beyond - 1) + 1
            del self._kept[:cut]
            self._lost += cut

    def part(self, offset: int) -> dict[str, Any]:
        """Return ``offset``, ``next``, ``size`` and ``text`` of what is kept from a byte on; negative: from the end."""
        self.acquire()  # what another thread logs must not move it meanwhile
        try:
            size = self._lost + len(self._kept)
            begin = min(max(offset if offset >= 0 else size + offset, self._lost), size)
            data = whole_characters(bytes(self._kept[begin - self._lost :][:PART_BYTES]))
        finally:
            self.release()
        return {"offset": begin, "next": begin + len(data), "size": size, "text": data.decode("utf-8", "replace")}


def whole_characters(data: bytes) -> bytes:
    """Return UTF-8 without the beginning of a character at its end; the rest of that one is to come."""
    for back, byte in enumerate(data[:-5:-1], start=1):
        if byte < 0x80:
            break
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
    return data
