"""A hub with users' snapshots as files on the disk, without processes, to mirror and to restore."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

from hub.services.snapshots.mirrors.mirror import Mirror
from hub.services.snapshots.store import Store
from spawner_config.snapshots.mirrors import MIRROR

if TYPE_CHECKING:
    from pathlib import Path

HUB_FILES = ("cookie_secret", "jupyterhub.sqlite", "profiles.toml", "snapshots_mirror_password", "snapshots_secret")
LIMIT = 1 << 30


class HubFiles:
    """The state folder of a hub whose database has one table, and the homes of its users."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.homes = folder / "homes"
        self.homes.mkdir(parents=True)
        self.state.mkdir(mode=0o700)
        (self.state / "cookie_secret").write_text("secret")
        (self.state / "profiles.toml").write_text("# profiles")
        (self.state / "hub.log").write_text("log")
        with closing(sqlite3.connect(self.state / "jupyterhub.sqlite")) as database, database:
            database.execute("create table users (name text)")
            database.execute("insert into users values ('ada')")
        self.start()

    def start(self) -> None:
        """Use the files as a new process of the service does."""
        self.store = Store(self.state, LIMIT)
        self.store.start()

    def environ(self, place: str, **settings: str) -> dict[str, str]:
        """Return the settings of a hub with a mirror."""
        given = {f"{MIRROR}_{key.upper()}": value for key, value in settings.items()}
        return {"FARANDOLE_STATE": str(self.state), MIRROR: place, **given}

    def mirror(self, place: str, **settings: str) -> Mirror:
        """Return the mirror at a place."""
        found = Mirror.from_environment(self.store, self.environ(place, **settings))
        assert found is not None
        return found

    async def take(self, user: str, content: bytes, *options: str) -> str:
        """Add a snapshot of a user's home with one file, and return its id."""
        home = self.homes / user
        home.mkdir(exist_ok=True)
        (home / "notes.txt").write_bytes(content)
        repository = await self.store.open(user)
        return summary(
            restic(repository.folder, self.state / "snapshots_secret", "backup", "--json", *options, str(home))
        )


def summary(output: str) -> str:
    """Return the id of the snapshot that `restic backup --json` has made."""
    return str(json.loads(output.splitlines()[-1])["snapshot_id"])


def restic(repository: Path | str, password_file: Path, command: str, *arguments: str, **environment: str) -> str:
    """Run restic as an operator does, and return its output."""
    options = ("--no-cache", "--repo", str(repository), "--password-file", str(password_file))
    done = subprocess.run(
        ["restic", command, *options, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"restic {command}: {done.stdout}{done.stderr}"
    return done.stdout


def snapshots(repository: Path | str, password_file: Path) -> list[dict[str, Any]]:
    """Return the records of all snapshots in a repository, the oldest first."""
    found: list[dict[str, Any]] = json.loads(restic(repository, password_file, "snapshots", "--json"))
    return sorted(found, key=lambda each: each["time"])
