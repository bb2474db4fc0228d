"""A driver's desk: a folder in the run store that says what it leads, and where requests are left for it.

A cluster can only be changed by the driver that leads it, and a driver is a kernel that may compute for hours, in any
notebook server of the user. What they all reach is the run store. ``<runs>/.desks/<id>/`` holds ``desk.json``, which
the driver keeps up to date, ``ask-<n>.json``, which somebody leaves there and the driver takes, ``answer-<n>.json``.
"""

from __future__ import annotations

import asyncio
import json
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

from farandole.driver.loop import in_thread
from farandole.exceptions import DeadlineError, FarandoleError
from farandole.runs.store import driver_is_gone
from farandole.runs.writer import strict_json, write_atomically

DESKS = ".desks"
SIGN = "desk.json"
POLL_SECONDS = 0.5
ANSWER_SECONDS = 15.0
"""How long a driver may take to see a request, on a busy machine, or a volume that is shown to others late."""
KEPT_ANSWERS = 20
TOUCH_SECONDS = 10.0
STALE_SECONDS = 60.0
"""A sign that nobody has touched for so long is that of a driver which is gone, as far as one can tell from afar."""

Act: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Does what a request asks for; a `FarandoleError` is its answer."""


class Mailbox:
    """The driver's side; belongs to its event loop."""

    def __init__(self, store: Path, describe: Callable[[], Mapping[str, Any]], acts: Mapping[str, Act]) -> None:
        """Prepare a desk in a store; ``describe`` returns what its sign says, ``acts`` are what it can be asked for."""
        self.folder = store / DESKS / secrets.token_hex(8)
        self._describe = describe
        self._acts = acts
        self._sign = b""
        self._touched = 0.0
        self._doing: set[asyncio.Task[None]] = set()
        self._answers: list[Path] = []

    async def serve(self) -> None:
        """Keep the sign up to date and do what is asked, until cancelled; then the desk is gone."""
        # Drivers that were killed have not cleared theirs away.
        await asyncio.to_thread(driver_statuses, self.folder.parent.parent)
        try:
            while True:
                # Where the volume is full or away nobody can ask for anything; the driver goes on.
                with suppress(OSError, ValueError):
                    await self._look()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await self._clear()

    async def _look(self) -> None:
        sign = strict_json(dict(self._describe())).encode()
        if sign != self._sign:
            # Not cancelled half-way: the thread would make the folder again that is being removed.
            await in_thread(partial(write_atomically, self.folder / SIGN, sign))
            self._sign, self._touched = sign, time.monotonic()
        elif time.monotonic() - self._touched > TOUCH_SECONDS:
            # After a pause of the machine it may have been taken for a dead driver's, and be gone.
            self._sign, self._touched = b"", time.monotonic()
            await asyncio.to_thread(os.utime, self.folder / SIGN)
            self._sign = sign
        for number, text in await asyncio.to_thread(_taken, self.folder):
            task = asyncio.create_task(self._do(number, text), name=f"desk {number}")
            self._doing.add(task)
            task.add_done_callback(self._doing.discard)

    async def _do(self, number: str, text: bytes) -> None:
        error = None
        try:
            request = json.loads(text)
            await self._acts[request["do"]](request)
        except FarandoleError as exc:
            error = str(exc)
        except (KeyError, TypeError, ValueError) as exc:
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
        for task in self._doing:
            task.cancel()
        if self._doing:
            await asyncio.wait(self._doing)
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()


def _taken(folder: Path) -> list[tuple[str, bytes]]:
    """Take the requests off the desk, the oldest first: that they are gone says that the driver is at it."""
    found = []
    for path in folder.glob("ask-*.json"):
        # One that is just being taken back, or cannot be read, holds up no other.
        with suppress(OSError):
            left, text = path.stat().st_mtime_ns, path.read_bytes()
            path.unlink()
            found.append((left, path.stem.removeprefix("ask-"), text))
    return [(number, text) for _, number, text in sorted(found)]


@dataclass(frozen=True, kw_only=True)
class DriverStatus:
    """What a desk says: which cluster its driver leads, from where, and how that is.

    ``ranks`` are (worker, rank, alive); ``runs`` the ids of those that go on; ``wanted`` is the number of workers that
    it was asked for and does not have yet, ``error`` why it could not have the last such number, or not be stopped;
    ``busy``: a cell runs, or the cluster starts: ``workers`` are then those that are to be.
    """

    folder: Path
    cluster: str
    local: bool
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

    @classmethod
    def read(cls, folder: Path) -> DriverStatus:
        """Return what a desk says; raises OSError, ValueError and the like."""
        record = json.loads((folder / SIGN).read_bytes())
        known = {name: record[name] for name in cls.__dataclass_fields__ if name != "folder"}
        ranks = tuple((str(worker), int(rank), bool(alive)) for worker, rank, alive in record["ranks"])
        workers, runs = tuple(record["workers"]), tuple(record["runs"])
        return cls(**{**known, "folder": folder, "ranks": ranks, "workers": workers, "runs": runs})


def driver_statuses(store: Path) -> list[DriverStatus]:
    """Return what the desks in a store say whose drivers are not known to have ended, the newest first."""
    found = []
    for folder in sorted((store / DESKS).glob("*")):
        try:
            sign = DriverStatus.read(folder)
            gone = _is_gone(sign)
        except (OSError, ValueError, KeyError, TypeError):
            # One that is just being set up, or cleared away, or what is left of one.
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
            continue
        if gone:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            found.append(sign)
    return sorted(found, key=lambda sign: sign.since, reverse=True)


def _is_gone(sign: DriverStatus) -> bool:
    if sign.driver.get("host") == socket.gethostname():
        return driver_is_gone(sign.driver)
    return _is_stale(sign.folder / SIGN)


def _is_abandoned(folder: Path) -> bool:
    """Say whether nobody has touched a desk without a sign, or anything on it, for long."""
    with suppress(OSError):
        return all(_is_stale(path) for path in (folder, *folder.iterdir()))
    return False


def _is_stale(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > STALE_SECONDS


async def ask(sign: DriverStatus, do: str, *, seconds: float = ANSWER_SECONDS, **what: Any) -> None:
    """Leave a request on a desk and return once it is done.

    Raises:
        DeadlineError: the driver is at it after ``seconds``, and goes on. FarandoleError: what the driver answers, or
        that it has not seen the request, which is taken back.
    """
    number = secrets.token_hex(8)
    question, answer = sign.folder / f"ask-{number}.json", sign.folder / f"answer-{number}.json"
    await asyncio.to_thread(write_atomically, question, strict_json({"do": do, **what}).encode())
    seen, deadline = False, time.monotonic() + ANSWER_SECONDS
    give_up = time.monotonic() + seconds
    while not await asyncio.to_thread(answer.exists):
        seen = seen or not await asyncio.to_thread(question.exists)
        if seen and time.monotonic() > give_up:
            raise DeadlineError(f"the driver of cluster {sign.cluster!r} is at it")
        if not seen and time.monotonic() > deadline:
            await asyncio.to_thread(_take_back, question)
            raise FarandoleError(
                f"the kernel that leads cluster {sign.cluster!r} has not answered for {ANSWER_SECONDS:g} s. If it is "
                "gone, `%cluster attach` takes the cluster up in another notebook."
            )
        await asyncio.sleep(POLL_SECONDS / 5)
    if (error := json.loads(await asyncio.to_thread(answer.read_bytes))["error"]) is not None:
        raise FarandoleError(error)


def _take_back(question: Path) -> None:
    question.unlink(missing_ok=True)
    # The driver may have ended since its sign was read, and the folder be there only for the question.
    with suppress(OSError):
        question.parent.rmdir()
