"""A hub without containers as files on the disk, without processes, to back up and to restore."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from hub.backup.operations import place_of
from hub.backup.sites.local import LocalSite
from tests.clients.mirrors import HubFiles

if TYPE_CHECKING:
    from pathlib import Path

    from hub.backup.place import BackupPlace

PASSWORD_FILE = "backup_password"


class LocalHub:
    """The hub whose state folder is ``folder``/state."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / "state"
        self.homes = self.state / "homes"

    def fill(self) -> None:
        """Create a hub with two users, their homes, and a snapshot of one of them."""
        files = HubFiles(self.state.parent)
        (self.state / "password").write_text("secret")
        self.add_users("grace")
        with closing(sqlite3.connect(self.state / "jupyterhub.sqlite")) as database, database:
            database.execute("CREATE TABLE alembic_version (version_num text)")
            database.execute("INSERT INTO alembic_version VALUES ('4621fec11365')")
        for user in ("ada", "grace"):
            self.write(user, "notes.txt", f"of {user}")
        self.write("ada", "runs/1/weights.bin", "x" * 100_000)
        (self.homes / "ada" / "link").symlink_to("notes.txt")
        (self.homes / "ada" / "empty").mkdir()
        (self.homes / "ada" / ".hidden").write_text("")
        self.write("empty", "x", "")
        (self.homes / "empty" / "x").unlink()
        asyncio.run(files.take("ada", b"first"))
        (self.state / "notices").mkdir()
        (self.state / "notices" / "ada.json").write_text("[]")

    def add_users(self, *names: str) -> None:
        """Add users to the database."""
        with closing(sqlite3.connect(self.state / "jupyterhub.sqlite")) as database, database:
            database.executemany("INSERT INTO users VALUES (?)", [(name,) for name in names])

    def users(self) -> list[str]:
        """Return the names of all users in the database."""
        with closing(sqlite3.connect(self.state / "jupyterhub.sqlite")) as database:
            return sorted(name for (name,) in database.execute("SELECT name FROM users"))

    def write(self, user: str, path: str, text: str) -> None:
        """Write a file in a user's home."""
        target = self.homes / user / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.write_text(text)

    @property
    def site(self) -> LocalSite:
        """The hub as `make backup` sees it."""
        return LocalSite({"FARANDOLE_STATE": str(self.state)})

    def place(self, folder: Path) -> BackupPlace:
        """Return the place in a folder, with this hub's file of the passphrase."""
        return place_of(self.site, str(folder))

    def knows_passphrase_of(self, other: LocalHub) -> None:
        """Copy the passphrase of another hub, as the documentation says."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.state / PASSWORD_FILE).write_bytes((other.state / PASSWORD_FILE).read_bytes())

    def secrets(self) -> dict[str, str]:
        """Return the contents of the files that make the hub what it is."""
        names = ("cookie_secret", "password", "snapshots_secret", "hub_id")
        return {name: (self.state / name).read_text() for name in names if (self.state / name).exists()}


def tree(folder: Path) -> dict[str, str]:
    """Return a text for each file, folder and link below a folder that says what it contains."""
    return {str(path.relative_to(folder)): _content(path) for path in folder.rglob("*")}


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    if path.is_dir():
        return "folder"
    return f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
