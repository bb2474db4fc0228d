"""The files of one run, written so that a killed driver or a full disk loses as little as possible.

What is added waits in memory; a thread appends it four times a second. After an `OSError` nothing is dropped (only very
long logs are): it is tried again every few seconds and goes on in the middle of a line where it stopped.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from farandole.protocol import float_to_json
from farandole.runs.positions import POSITIONS, JournalPosition, sizes_of

FLUSH_SECONDS = 0.25
RETRY_SECONDS = 5.0
LOG_LIMIT = 4_000_000
"""Bytes of log that one file may hold back in memory while nothing can be written."""


Text: TypeAlias = str | Callable[[], str]
"""What a file is to hold, or what makes it."""


class Sink(Protocol):
    """Where a run keeps what it is told."""

    def append(self, texts: Mapping[str, str], position: JournalPosition | None = None) -> None:
        """Append the content of one message, which has this position, to files of the run: texts by name."""

    def replace(self, name: str, text: Text) -> None:
        """Replace a whole file of the run."""

    def flush(self, *, force: bool = False) -> None:
        """Hand everything to the operating system; ``force`` retries at once after an error."""

    def close(self) -> None:
        """Flush for the last time."""


class Renew(Protocol):
    """Brings up to date what is made of all that a run was told."""

    def __call__(self, version: int, *, last: bool) -> None:
        """Do so where there is news since an earlier ``version``, and in any case the last time."""


class Nowhere:
    """The sink of a run that was read from disk: keeps nothing."""

    def append(self, texts: Mapping[str, str], position: JournalPosition | None = None) -> None:
        """Do nothing."""

    def replace(self, name: str, text: Text) -> None:
        """Do nothing."""

    def flush(self, *, force: bool = False) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class RunFiles:
    """The folder of a run that is being written.

    Three locks: ``_pending`` guards what waits and is never held while writing, so that adding never waits for a slow
    disk; ``_writing`` lets one thread write at a time, ``_renewing`` one make what is renewed. No lock is held while
    ``tell`` is called.
    """

    def __init__(
        self, folder: Path, *, retry_seconds: float = RETRY_SECONDS, written: Mapping[str, int] | None = None
    ) -> None:
        """Continue the files of a folder; ``written`` are the numbers that `cut_back` has returned for it."""
        self.folder = folder
        self._numbers = dict(written or {})
        """The number of the last message of each kernel that is written or waits."""
        self._numbers_on_disk = dict(self._numbers)
        self._sizes: dict[str, int] = {}
        self._tell: Callable[[str], None] | None = None
        self._renew: Renew | None = None
        self._renewing = threading.Lock()
        self._version = 0
        self._retry_seconds = retry_seconds
        self._appends: dict[str, bytearray] = {}
        self._replaces: dict[str, Text] = {}
        self._pending = threading.Lock()
        self._writing = threading.Lock()
        self._closed = threading.Event()
        self._failed_at: float | None = None
        self._thread = threading.Thread(target=self._flush_often, name="farandole-run-files", daemon=True)

    def start(self, tell: Callable[[str], None], renew: Renew | None = None) -> None:
        """Write what is there, then go on in the background.

        ``tell`` is called with one sentence when writing first fails, and again when it works once more. ``renew`` is
        called in the background with a number that grows with all that is added, and for the last time at the end.
        """
        self._tell = tell
        self._renew = renew
        with contextlib.suppress(OSError):
            self._sizes = sizes_of(self.folder)
        self.flush()
        self._thread.start()

    def append(self, texts: Mapping[str, str], position: JournalPosition | None = None) -> None:
        """Append the content of one message to files of the run: texts by name.

        All of it and its position are taken in at once: `positions.json` must never tell of half a message.
        """
        with self._pending:
            for name, text in texts.items():
                self._version += 1
                waiting = self._appends.setdefault(name, bytearray())
                waiting += text.encode("utf-8", "replace")
                if self._failed_at is not None and name.startswith("logs/") and len(waiting) > LOG_LIMIT:
                    del waiting[: len(waiting) - LOG_LIMIT]
            if position is not None:
                kernel, number = position
                self._numbers[kernel] = number

    def replace(self, name: str, text: Text) -> None:
        """Replace a whole file of the run; readers see the old one or the new one.

        A function makes the text when it is written: one that grows with the ranks must not be made again for each of
        them.
        """
        with self._pending:
            self._replaces[name] = text

    def flush(self, *, force: bool = False) -> None:
        """Hand everything to the operating system; after an error only every few seconds, unless forced."""
        with self._writing:
            news = self._try_to_write() if force or self._may_try() else None
        if news and self._tell:
            self._tell(news)

    def close(self) -> None:
        """Flush for the last time and end the thread; it stays while something could not be written."""
        try:
            if not self._closed.is_set():
                self._closed.set()
                # All that is made of the run comes after the run itself: that may take long, or be interrupted.
                self.flush(force=True)
                self._bring_up_to_date(last=True)
        finally:
            self.flush(force=True)

    def _bring_up_to_date(self, *, last: bool) -> None:
        # Under a lock: what the thread has begun to make before the end must not come after what is made at the end.
        with self._renewing:
            news = self._try_to_renew(last=last) if last or not self._closed.is_set() else None
        if news and self._tell:
            self._tell(news)

    def _try_to_renew(self, *, last: bool) -> str | None:
        """Renew what is made of the run; where that fails give it up, and return a sentence for the user."""
        if self._renew is None:
            return None
        try:
            self._renew(self._version, last=last)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it must not cost the run its metrics
            self._renew = None
            return (
                f"Run {self.folder.name} has no short version for the panel any more: {error!r}; none of its metrics "
                "are missing, and the panel reads those"
            )
        return None

    def _flush_often(self) -> None:
        while not self._closed.wait(FLUSH_SECONDS):
            self.flush()
            self._bring_up_to_date(last=False)
        pause = threading.Event()
        while self._has_unwritten():
            pause.wait(self._retry_seconds)
            self.flush(force=True)

    def _has_unwritten(self) -> bool:
        with self._writing, self._pending:  # not in mid-write, when what is being written is in neither
            return bool(self._appends or self._replaces)

    def _may_try(self) -> bool:
        return self._failed_at is None or time.monotonic() - self._failed_at >= self._retry_seconds

    def _try_to_write(self) -> str | None:
        """Write all that waits; return a sentence for the user when that fails first, or works again."""
        failed_before = self._failed_at is not None
        try:
            self._write_all()
        except OSError as error:
            self._failed_at = time.monotonic()
            return None if failed_before else self._cannot_write(error)
        self._failed_at = None
        return f"Run {self.folder.name} is written again; none of its metrics are missing" if failed_before else None

    def _cannot_write(self, error: OSError) -> str:
        return (
            f"Run {self.folder.name} cannot be written: {error.strerror or error}: {self.folder}; metrics are kept in "
            "memory and written once it works again (free some space, or set FARANDOLE_RUNS to another folder)"
        )

    def _write_all(self) -> None:
        with self._pending:
            appends, self._appends, numbers = self._appends, {}, dict(self._numbers)
        try:
            for name in list(appends):
                self._append_now(name, appends[name])
                del appends[name]
        finally:
            with self._pending:
                for name, data in appends.items():
                    self._appends[name] = data + self._appends.get(name, b"")
        for name in list(self._replaces):
            self._replace_now(name)
        # Last: run.json holds results and notices of the same messages.
        if numbers != self._numbers_on_disk:
            positions = strict_json({"kernels": numbers, "sizes": self._sizes})
            write_atomically(self.folder / POSITIONS, positions.encode())
            self._numbers_on_disk = numbers

    def _replace_now(self, name: str) -> None:
        with self._pending:
            text = self._replaces[name]
        content = text if isinstance(text, str) else text()
        write_atomically(self.folder / name, content.encode("utf-8", "replace"))
        with self._pending:
            if self._replaces[name] is text:
                del self._replaces[name]

    def _append_now(self, name: str, data: bytearray) -> None:
        """Write to the end of a file, and remove from the data what was written, also when an error comes between."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            while data:
                del data[: os.write(descriptor, data[:1_000_000])]
            self._sizes[name] = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that a reader, or a crash, finds the old content or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def strict_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as strict JSON: floats that are not finite become strings, unknown objects their text."""
    return json.dumps(_strict(value), indent=indent, allow_nan=False, default=str, ensure_ascii=False)


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return float_to_json(value)
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
