"""The repositories of all users, in the folder ``snapshots`` of the hub's state folder."""

from __future__ import annotations

import asyncio
import fcntl
import hmac
import shutil
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hub.services.snapshots.disk import Disk, sync_folder
from hub.services.snapshots.repository import BusyError, Repository
from hub.services.snapshots.restic import Restic
from spawner_config.origins.hosts import host_label, is_host_label
from spawner_config.settings import ensure_secret
from spawner_config.snapshots.record import service_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

SECRET = "snapshots_secret"
"""The file with the hub's password of all repositories, in the hub's state folder."""
POLL_SECONDS = 0.1


class Store:
    """Finds and creates repositories. The folder of each has a name that no other user's can have."""

    def __init__(self, state: Path, limit: int) -> None:
        """Use the hub's state folder. The snapshots of a user may take ``limit`` bytes."""
        self.own = service_folder(state)
        self.folder = self.own.parent
        self.parts = self.own / "parts"
        self.disk = Disk(self.parts)
        self._marks = self.own / "pruning"
        self.own.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state = state
        self.secret_file = state / SECRET
        self.restic = Restic(password_file=self.secret_file)
        self._limit = limit
        self._found: dict[str, Repository] = {}
        self._creating = asyncio.Lock()

    def start(self) -> None:
        """Make the secret if there is none, and remove what a killed service has left.

        That is files that had not arrived, and the locks of its restic. No other process may use the store.
        """
        ensure_secret(self.secret_file)
        shutil.rmtree(self.parts, ignore_errors=True)
        for each in (self.parts, self._marks):
            each.mkdir(mode=0o700, exist_ok=True)
        for mark in self._marks.iterdir():
            Repository(self.folder / mark.name, self._limit).remove_locks()
            mark.unlink()

    def names(self) -> Iterator[str]:
        """Yield the names of the folders of all repositories. A disk may have others, such as lost+found."""
        yield from sorted(each.name for each in self.folder.iterdir() if is_host_label(each.name))

    async def of(self, user: str) -> Repository | None:
        """Return a user's repository, or None if there is none."""
        return await self.named(host_label(user))

    async def named(self, name: str) -> Repository | None:
        """Return the repository in the folder with this name, or None if there is none."""
        if name not in self._found:
            repository = Repository(self.folder / name, self._limit)
            if not repository.exists:
                return None
            used = await asyncio.to_thread(repository.count)
            # Another request may have counted meanwhile, and its repository may have got files since.
            if name not in self._found:
                repository.used = used
                self._found[name] = repository
        return self._found[name]

    async def open(self, user: str) -> Repository:
        """Return a user's repository, after creating it if there is none; raises `ResticError` or OSError."""
        repository = await self.of(user)
        if repository is None:
            # One at a time, because restic takes about a second of a core for each key.
            async with self._creating:
                repository = await self.of(user) or await self._create(user)
        return repository

    def password(self, user: str) -> str:
        """Return the password of a user's key, which opens the user's own repository only."""
        secret = ensure_secret(self.secret_file)
        return hmac.digest(secret.encode(), user.encode(), "sha256").hex()

    @asynccontextmanager
    async def maintenance(self, seconds: float = 0.0) -> AsyncIterator[None]:
        """Keep other processes, such as an operator's command, from pruning and mirroring in this context.

        Raises `BusyError` if another one does so for longer than ``seconds``.
        """
        give_up = time.monotonic() + seconds
        with (self.own / "maintenance").open("w", encoding="ascii") as file:
            while not _try_lock(file):
                if time.monotonic() >= give_up:
                    raise BusyError("Another process prunes or mirrors snapshots. Try again when it has finished.")
                await asyncio.sleep(POLL_SECONDS)
            yield

    def mark(self, name: str) -> Path:
        """Return the file that exists while the hub prunes a repository."""
        return self._marks / name

    async def _create(self, user: str) -> Repository:
        """Return a new repository with the hub's key and the user's. A service that is killed here leaves none."""
        part = Path(tempfile.mkdtemp(dir=self.parts))
        try:
            await self.restic.init(part / "new")
            password = part / "password"
            password.touch(mode=0o600)
            password.write_text(self.password(user), encoding="ascii")
            await self.restic.add_key(part / "new", user, password)
            (part / "new").rename(self.folder / host_label(user))
            sync_folder(self.folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        created = await self.of(user)
        assert created is not None
        return created


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
