"""Writes the files of one run so that a killed driver or a full disk loses as little as possible.

New data is kept in memory, and a thread appends it to the files four times a second. After an `OSError`, all data stays
in memory, except for the beginnings of very long logs. The thread then retries every few seconds and continues at the
byte where it stopped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from farandole.protocol import Notify, float_to_json
from farandole.reading import SAFE, check_parents
from farandole.runs.lifecycle.heartbeat import Heartbeat
from farandole.runs.lifecycle.tombstones import is_deleted
from farandole.runs.logs import OutputTimes, times_of
from farandole.runs.positions import POSITIONS, JournalPosition, sizes_of

FLUSH_SECONDS = 0.25
RETRY_SECONDS = 5.0
RUN_FILE = "run.json"
"""Name of the only file that is synced to disk on every write, because the run cannot be read without this file.

The other files are updated too often to wait for the disk each time.
"""
LOG_LIMIT = 4_000_000
"""Maximum number of bytes of one log that are kept in memory while the log file cannot be written."""


Text: TypeAlias = str | Callable[[], str]
"""The content of a file, or a function that returns the content when the file is written."""


class Sink(Protocol):
    """Interface for storing the data of a run."""

    def append(
        self, texts: Mapping[str, str], position: JournalPosition | None = None, printed: float | None = None
    ) -> None:
        """Append the content of the message at ``position`` to files of the run. ``texts`` is keyed by file name.

        Output for logs was printed at the time ``printed``, or now.
        """

    def replace(self, name: str, text: Text) -> None:
        """Replace a whole file of the run."""

    def flush(self, *, force: bool = False) -> None:
        """Write all data to the files. If ``force`` is true, retry immediately after an error."""

    def close(self) -> None:
        """Write all data for the last time."""


class Renew(Protocol):
    """A function that updates the files that are derived from all data of a run."""

    def __call__(self, version: int, *, last: bool) -> None:
        """Update the files that are older than ``version``. If ``last`` is true, update all files."""


class Nowhere:
    """The sink of a run that this process does not write to disk. It discards all data."""

    def append(
        self, texts: Mapping[str, str], position: JournalPosition | None = None, printed: float | None = None
    ) -> None:
        """Do nothing."""

    def replace(self, name: str, text: Text) -> None:
        """Do nothing."""

    def flush(self, *, force: bool = False) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class RunFiles:
    """Writes the files in the folder of a run. There are three locks:

    - ``_pending`` guards the data in memory. It is never held during a write, so adding data never waits for the disk.
    - ``_writing`` lets only one thread at a time write.
    - ``_renewing`` lets only one thread at a time make the derived files.

    No lock is held while ``tell`` is called.
    """

    def __init__(
        self, folder: Path, *, retry_seconds: float = RETRY_SECONDS, written: Mapping[str, int] | None = None
    ) -> None:
        """Continue the files in a folder. ``written`` has the message numbers that `cut_back` returned, if any."""
        self.folder = folder
        self._heartbeat = Heartbeat(folder)
        self._exists = False
        """Whether the folder has been created. If it is missing later, the user has deleted or moved the run."""
        self._numbers = dict(written or {})
        """The number of the last message that was added from each kernel, by kernel id. It may still be in memory."""
        self._positions: dict[str, dict[str, int]] = {}
        self._sizes: dict[str, int] | None = None
        """The sizes of the files, or None until the folder has been read.

        The recorded sizes must include all files, because `cut_back` truncates a file without a size to zero bytes.
        """
        self._first_sizes: dict[str, int] = {}
        """The sizes of the files before this object has written any of them."""
        self._times = OutputTimes()
        self._tell: Notify | None = None
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

    def start(self, tell: Notify, renew: Renew | None = None) -> None:
        """Write the data in memory, then start the thread.

        - ``tell`` is called with a notice for the user when writing starts to fail or works again, and when the derived
          files cannot be updated any more.
        - ``renew`` is called on the thread to update the derived files. Its argument is a version number that grows
          with each addition. `close` calls ``renew`` once more.
        """
        self._tell = tell
        self._renew = renew
        self.flush()
        self._heartbeat.beat()
        self._thread.start()

    def append(
        self, texts: Mapping[str, str], position: JournalPosition | None = None, printed: float | None = None
    ) -> None:
        """Append the content of one message to files of the run. ``texts`` is keyed by file name.

        The texts and the position are added under one lock, because ``positions.json`` must not count a message until
        all of its content is written.
        """
        with self._pending:
            for name, text in texts.items():
                self._version += 1
                data = text.encode("utf-8", "replace")
                self._appends.setdefault(name, bytearray()).extend(data)
                if name.startswith("logs/"):
                    self._times.add(name, len(data), time.time() if printed is None else printed)
                    self._limit(name)
            if position is not None:
                kernel, number = position
                self._numbers[kernel] = number

    def _limit(self, log: str) -> None:
        """While the files cannot be written, forget the beginning of a long log, and the times of what is kept."""
        beyond = len(self._appends[log]) - LOG_LIMIT
        if self._failed_at is not None and beyond > 0:
            del self._appends[log][:beyond]
            self._times.drop(log, beyond)
            self._appends.pop(times_of(log), None)

    def replace(self, name: str, text: Text) -> None:
        """Replace a whole file of the run at the next write. Readers see either the old content or the new content.

        If ``text`` is a function, it is called only when the file is written. Content that many ranks change between
        two writes is therefore made only once.
        """
        with self._pending:
            self._replaces[name] = text

    def flush(self, *, force: bool = False) -> None:
        """Write all data to the files. After an error, retry only every few seconds unless ``force`` is true."""
        with self._writing:
            news = self._try_to_write() if force or self._may_try() else None
            failed = self._failed_at is not None
        if news and self._tell:
            self._tell(news, warning=failed)

    def close(self) -> None:
        """Write all data for the last time and end the thread. If writing fails, the thread retries before it ends."""
        try:
            if not self._closed.is_set():
                self._closed.set()
                # The derived files come last, because making them may take a long time or be interrupted.
                self.flush(force=True)
                self._bring_up_to_date(last=True)
        finally:
            self.flush(force=True)

    def _bring_up_to_date(self, *, last: bool) -> None:
        # Without the lock, older files that the thread is still making could replace the final ones.
        with self._renewing:
            news = self._try_to_renew(last=last) if last or not self._closed.is_set() else None
        if news and self._tell:
            self._tell(news, warning=True)

    def _try_to_renew(self, *, last: bool) -> str | None:
        """Update the derived files. After an error, stop updating them and return a notice for the user."""
        if self._renew is None:
            return None
        try:
            self._renew(self._version, last=last)
        except Exception as error:  # noqa: BLE001 - no error in derived files may cost the run its metrics
            self._renew = None
            return (
                f"The panel's summary files of run {self.folder.name} cannot be updated any more: {error!r}; all "
                "metrics of the run are stored, and the panel reads those instead"
            )
        return None

    def _flush_often(self) -> None:
        while not self._closed.wait(FLUSH_SECONDS):
            self._heartbeat.beat()
            self.flush()
            self._bring_up_to_date(last=False)
        pause = threading.Event()
        while self._has_unwritten() and not is_deleted(self.folder):
            pause.wait(self._retry_seconds)
            self.flush(force=True)

    def _has_unwritten(self) -> bool:
        with self._writing, self._pending:  # Data that is being written is in neither dict.
            return bool(self._appends or self._replaces)

    def _may_try(self) -> bool:
        return self._failed_at is None or time.monotonic() - self._failed_at >= self._retry_seconds

    def _try_to_write(self) -> str | None:
        """Write the buffered data to disk. Return a notice for the user when writing starts to fail or works again."""
        failed_before = self._failed_at is not None
        try:
            self._write_all()
        except OSError as error:
            self._failed_at = time.monotonic()
            return None if failed_before else self._cannot_write(error)
        self._failed_at = None
        return f"Run {self.folder.name} is written again; none of its metrics are missing" if failed_before else None

    def _cannot_write(self, error: OSError) -> str:
        if is_deleted(self.folder):
            return f"Run {self.folder.name} has been deleted, so nothing more of it is written: {self.folder}"
        return (
            f"Run {self.folder.name} cannot be written: {error.strerror or error}: {self.folder}; metrics are kept in "
            "memory and written once it works again (free some space, or set FARANDOLE_RUNS to another folder)"
        )

    def _write_all(self) -> None:
        self._check_folder()
        sizes = self._known_sizes()
        with self._pending:
            for name, lines in self._times.take(self._first_sizes).items():
                self._appends.setdefault(name, bytearray()).extend(lines.encode())
            appends, self._appends, numbers = self._appends, {}, dict(self._numbers)
        try:
            for name in list(appends):
                sizes[name] = self._append_now(name, appends[name])
                del appends[name]
        finally:
            with self._pending:
                for name, data in appends.items():
                    self._appends[name] = data + self._appends.get(name, b"")
        for name in list(self._replaces):
            self._replace_now(name)
        # The positions are written last, because run.json contains results and notices from the same messages.
        positions = {"kernels": numbers, "sizes": dict(sizes)}
        if numbers and positions != self._positions:
            write_atomically(self.folder / POSITIONS, strict_json(positions).encode(), parents=False)
            self._positions = positions

    def _check_folder(self) -> None:
        """Create the folder before the first write. Later, raise OSError if it is missing, and do not create it again.

        A folder that is created again would contain only the rest of a run that the user has deleted.
        """
        if not self._exists:
            if not self.folder.is_dir():
                self._create_folder()
            self._exists = True
        elif not self.folder.is_dir():
            raise OSError(errno.ENOENT, "The folder of the run was deleted or moved", str(self.folder))

    def _create_folder(self) -> None:
        """Create the folder with ``run.json`` under a hidden name, then rename it.

        Otherwise, a reader could find the folder without this file and report that the run cannot be read.
        """
        hidden = self.folder.with_name(f".{self.folder.name}.new")
        hidden.mkdir(parents=True, exist_ok=True)
        with self._pending:
            text = self._replaces.get(RUN_FILE)
        if text is not None:
            write_atomically(hidden / RUN_FILE, (text if isinstance(text, str) else text()).encode("utf-8", "replace"))
        hidden.rename(self.folder)

    def _known_sizes(self) -> dict[str, int]:
        if self._sizes is None:
            self._sizes = sizes_of(self.folder)
            self._first_sizes = dict(self._sizes)
        return self._sizes

    def _replace_now(self, name: str) -> None:
        with self._pending:
            text = self._replaces[name]
        content = text if isinstance(text, str) else text()
        path = self._path_of(name)
        durable = name == RUN_FILE
        write_atomically(path, content.encode("utf-8", "replace"), durable=durable, parents=False)
        with self._pending:
            if self._replaces[name] is text:
                del self._replaces[name]

    def _append_now(self, name: str, data: bytearray) -> int:
        """Append data to a file and return its new size. Remove written bytes from ``data``, even after an error."""
        path = self._path_of(name)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | SAFE, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "Not a regular file", str(path))
            while data:
                del data[: os.write(descriptor, data[:1_000_000])]
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _path_of(self, name: str) -> Path:
        """Return the path of a file of the run, and create its subfolder, but not the folder of the run.

        Raises OSError if a folder between the folder of the run and the file is a link, for example to another run.
        """
        path = self.folder / name
        try:
            check_parents(self.folder, name)
        except ValueError as exc:
            raise OSError(errno.ELOOP, str(exc), str(path)) from exc
        if path.parent != self.folder:
            path.parent.mkdir(exist_ok=True)
        return path


def write_atomically(
    path: Path, data: bytes, *, durable: bool = False, shared: bool = False, parents: bool = True
) -> None:
    """Replace a file so that readers see either the old or the new content, even if this process crashes.

    If ``durable`` is true, this also applies after a power failure, which could otherwise leave an empty file.
    If ``shared`` is true, several processes may replace the file at the same time, and the last one determines its
    content. A process that crashes leaves its temporary file, which without ``shared`` the next call replaces.
    If ``parents`` is true, missing folders are created.
    """
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    unique = f".{secrets.token_hex(8)}" if shared else ""
    temporary = path.with_name(f".{path.name}{unique}.tmp")
    try:
        # The file must be new, because opening an existing link would write to its target, and a pipe could block.
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def strict_json(value: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """Encode a value as strict JSON. Floats that are not finite and objects of unknown types become strings.

    Unpaired surrogates, which file names and JSON may contain, become question marks, as UTF-8 cannot encode them.
    """
    text = json.dumps(
        _strict(value), indent=indent, separators=separators, allow_nan=False, default=str, ensure_ascii=False
    )
    return text.encode("utf-8", "replace").decode()


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return float_to_json(value)
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
