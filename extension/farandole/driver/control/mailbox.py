"""A driver's mailbox: a folder in the run store that contains the driver's status and accepts requests.

Only the driver that controls a cluster can change the cluster. That driver is a kernel on any of the user's notebook
servers, and may be busy for hours. Requests go through the run store because all of these servers can access it.

The folder ``<runs>/.desks/<id>/`` contains the following files:

- ``desk.json``: the driver's status, which the driver keeps up to date.
- ``ask-<n>.json``: a request, which the driver removes when it begins to handle the request.
- ``answer-<n>.json``: the answer to that request.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from farandole.driver.data.status import DaskStatus
from farandole.driver.loop import in_thread
from farandole.exceptions import DeadlineError, FarandoleError
from farandole.reading import SMALL_JSON_BYTES, check_types, parse_json, read_bytes, read_json
from farandole.runs.folder import driver_is_gone
from farandole.runs.writer import strict_json, write_atomically

MAILBOXES = ".desks"
STATUS_FILE = "desk.json"
POLL_SECONDS = 0.5
ANSWER_SECONDS = 15.0
"""How many seconds a driver may take to see a request. The machine may be busy, and a shared volume may show new files
late."""
KEPT_ANSWERS = 20
REQUEST_BYTES = 100_000
TOUCH_SECONDS = 10.0
STALE_SECONDS = 60.0
"""A driver on another host counts as lost if it has not touched its status file for this many seconds."""

Action: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
"""A coroutine function that handles a request. If it raises a `FarandoleError`, the message becomes the answer."""


class Mailbox:
    """The driver's end of a mailbox, which must only be used in the driver's event loop."""

    def __init__(self, store: Path, describe: Callable[[], Mapping[str, Any]], actions: Mapping[str, Action]) -> None:
        """Prepare a mailbox in a store; ``describe`` returns the status, and ``actions`` maps requests to handlers."""
        self.folder = store / MAILBOXES / secrets.token_hex(8)
        self._describe = describe
        self._actions = actions
        self._written = b""
        self._touched = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: list[Path] = []

    async def serve(self) -> None:
        """Keep the status up to date and handle requests until cancelled, and then remove the mailbox."""
        # As a side effect, reading the statuses removes the mailboxes of killed drivers.
        await asyncio.to_thread(driver_statuses, self.folder.parent.parent)
        try:
            while True:
                # Requests cannot be served while the volume is full or unreachable, but the driver must keep running.
                with suppress(OSError, ValueError):
                    await self._poll()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await self._clear()

    async def _poll(self) -> None:
        _refuse_link(self.folder.parent)
        status = strict_json(dict(self._describe())).encode()
        if status != self._written:
            # On cancellation, the thread has to finish first. Otherwise it could create the folder after `_clear`.
            await in_thread(partial(write_atomically, self.folder / STATUS_FILE, status))
            self._written, self._touched = status, time.monotonic()
        elif time.monotonic() - self._touched > TOUCH_SECONDS:
            # If the machine was suspended, other processes may have removed this mailbox because it looked stale. In
            # that case `utime` raises an error, and the next poll writes the status again.
            self._written, self._touched = b"", time.monotonic()
            await asyncio.to_thread(os.utime, self.folder / STATUS_FILE)
            self._written = status
        for number, text in await asyncio.to_thread(_take_requests, self.folder):
            task = asyncio.create_task(self._handle(number, text), name=f"request {number}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, number: str, text: bytes) -> None:
        error = None
        try:
            request = parse_json(text, "the request")
            await self._actions[request["do"]](request)
        except FarandoleError as exc:
            error = str(exc)
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            error = f"the driver does not understand {text[:200]!r}: {exc!r}"
        with suppress(OSError):
            await in_thread(partial(self._answer, self.folder / f"answer-{number}.json", error))

    def _answer(self, answer: Path, error: str | None) -> None:
        write_atomically(answer, strict_json({"error": error}).encode())
        self._answers.append(answer)
        for old in self._answers[:-KEPT_ANSWERS]:
            old.unlink(missing_ok=True)
        del self._answers[:-KEPT_ANSWERS]

    async def _clear(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()


def _take_requests(folder: Path) -> list[tuple[str, bytes]]:
    """Remove all requests and return them, oldest first. The removal tells the senders that the driver is running."""
    found = []
    for path in folder.glob("ask-*.json"):
        # A request that is being withdrawn or cannot be read must not delay the others.
        with suppress(OSError):
            left = path.lstat().st_mtime_ns
            try:
                text = read_bytes(folder, path.name, REQUEST_BYTES)
            except ValueError as exc:
                text = str(exc).encode()
            path.unlink()
            found.append((left, path.stem.removeprefix("ask-"), text))
    return [(number, text) for _, number, text in sorted(found)]


@dataclass(frozen=True, kw_only=True)
class DriverStatus:
    """The status of a driver and of its cluster.

    - ``hub`` is the hub's address as the driver uses it, or None if there is no hub or the driver does not publish it.
    - ``ranks`` contains a tuple (worker, rank, alive) for each rank, and ``runs`` the ids of the runs in progress.
    - ``busy`` is true while a cell is running, and while the cluster is starting or changing its size.
    - ``workers`` contains the names of the workers or, during a start, of the planned workers.
    - ``wanted`` is the requested number of workers while the cluster is being scaled, or None.
    - ``error`` is the reason why the last scale or stop failed, or None.
    - ``dask`` is the status of Dask on the ranks, or None if it does not run.
    """

    folder: Path
    cluster: str
    local: bool
    hub: str | None
    backend: str
    notebook: str
    kernel: str
    driver: Mapping[str, Any]
    since: float
    busy: bool
    workers: tuple[str, ...]
    ranks: tuple[tuple[str, int, bool], ...]
    runs: tuple[str, ...]
    wanted: int | None
    error: str | None
    dask: DaskStatus | None

    @classmethod
    def read(cls, folder: Path) -> DriverStatus:
        """Read the status from a mailbox; raises OSError or ValueError if that is not possible."""
        record = read_json(folder, STATUS_FILE, SMALL_JSON_BYTES)
        known: dict[str, Any] = {name: record.get(name) for name in cls.__dataclass_fields__ if name != "folder"}
        check_types(known, KINDS, STATUS_FILE)
        ranks = tuple((worker, rank, alive) for worker, rank, alive in record["ranks"])
        workers, runs = tuple(record["workers"]), tuple(record["runs"])
        dask = None if known["dask"] is None else DaskStatus.read(known["dask"])
        return cls(**{**known, "folder": folder, "ranks": ranks, "workers": workers, "runs": runs, "dask": dask})


KINDS = {
    "local": "flag",
    "hub": "text or null",
    "driver": "process",
    "since": "time",
    "busy": "flag",
    "workers": "texts",
    "ranks": "ranks",
    "runs": "texts",
    "wanted": "count of workers or null",
    "error": "text or null",
    "dask": "object or null",
}
"""The types of the status values. Values that are not listed here are strings."""


def driver_statuses(store: Path) -> list[DriverStatus]:
    """Return the statuses of drivers that may still be running, newest first. Remove the mailboxes of ended drivers."""
    found = []
    for folder in _mailboxes(store / MAILBOXES):
        try:
            status = DriverStatus.read(folder)
            gone = _is_gone(status)
        except (OSError, ValueError):
            # The mailbox is either being created or removed, or its driver was killed before the status was complete.
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
            continue
        if gone:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            found.append(status)
    return sorted(found, key=lambda status: status.since, reverse=True)


def _mailboxes(folder: Path) -> list[Path]:
    """Return the mailboxes. Return an empty list if their folder is a link, so that nothing is removed elsewhere."""
    return [] if folder.is_symlink() else sorted(folder.glob("*"))


def _refuse_link(folder: Path) -> None:
    """Raise OSError if the folder of all mailboxes is a link, which might lead to the files of another user."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "The folder is a symbolic link", str(folder))


def _is_gone(status: DriverStatus) -> bool:
    if status.driver.get("host") == socket.gethostname():
        return driver_is_gone(status.driver)
    return _is_stale(status.folder / STATUS_FILE)


def _is_abandoned(folder: Path) -> bool:
    """Return whether a mailbox without a status, and every file in it, is old enough to be removed."""
    with suppress(OSError):
        return all(_is_stale(path) for path in (folder, *folder.iterdir()))
    return False


def _is_stale(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > STALE_SECONDS


async def ask(status: DriverStatus, do: str, *, seconds: float = ANSWER_SECONDS, **what: Any) -> None:
    """Send a request to a mailbox, and return once the driver has handled it.

    Raises:
        DeadlineError: the driver is still handling the request after ``seconds``, and continues to do so.
        FarandoleError: the driver answered with an error, or did not see the request, which has been withdrawn.
    """
    number = secrets.token_hex(8)
    request, answer = status.folder / f"ask-{number}.json", status.folder / f"answer-{number}.json"
    await asyncio.to_thread(write_atomically, request, strict_json({"do": do, **what}).encode())
    seen, deadline = False, time.monotonic() + ANSWER_SECONDS
    give_up = time.monotonic() + seconds
    while not await asyncio.to_thread(answer.exists):
        seen = seen or not await asyncio.to_thread(request.exists)
        if seen and time.monotonic() > give_up:
            raise DeadlineError(f"the driver of cluster {status.cluster!r} is still handling the request; it continues")
        if not seen and time.monotonic() > deadline:
            await asyncio.to_thread(_withdraw, request)
            raise FarandoleError(
                f"the kernel that leads cluster {status.cluster!r} has not accepted the request within "
                f"{ANSWER_SECONDS:g} s. If that kernel has ended, take over the cluster from another notebook with "
                f"`%cluster attach {status.cluster}`."
            )
        await asyncio.sleep(POLL_SECONDS / 5)
    if (error := await asyncio.to_thread(_error_in, status.folder, answer.name)) is not None:
        raise FarandoleError(error)


def _error_in(folder: Path, answer: str) -> str | None:
    try:
        error = read_json(folder, answer, SMALL_JSON_BYTES)["error"]
    except (OSError, ValueError, KeyError) as exc:
        return f"the answer of the driver cannot be read: {exc}"
    return None if error is None else str(error)


def _withdraw(request: Path) -> None:
    request.unlink(missing_ok=True)
    # If the driver ended after its status was read, writing the request has created the folder again.
    with suppress(OSError):
        request.parent.rmdir()
