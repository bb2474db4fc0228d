"""A hub without containers, whose volumes are folders in its state folder (`make up`)."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hub.backup.agent import perform
from hub.backup.place import BackupError
from hub.backup.sites.site import Source
from spawner_config.settings import state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hub.backup.job import Job
    from hub.backup.manifest import Manifest

HOMES = "homes"
HOME = "home/"


class LocalSite:
    """The hub of `make up` with a state folder. While it is restored, no hub can start with this folder."""

    deployment = "local"
    database = "sqlite"

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read FARANDOLE_STATE and the settings of backups."""
        self._environ = environ
        self._folder = state_folder(environ)
        self.state = str(self._folder)
        self.password_file = self._folder / "backup_password"

    def setting(self, key: str) -> str:
        """Return an environment variable."""
        return self._environ.get(key) or ""

    def source(self) -> Source:
        """Return the homes."""
        homes = self._folder / HOMES
        names = sorted(each.name for each in homes.iterdir() if each.name[0] != ".") if homes.is_dir() else []
        return Source(folders={f"{HOME}{name}": (str(homes), name) for name in names})

    def run(self, job: Job) -> dict[str, Any]:
        """Do a step in this process."""
        try:
            return perform(job)
        except OSError as exc:
            raise BackupError(f"{exc}. Check the disk and the permissions.") from exc

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Keep hubs from starting with the folder in this context; raises `BackupError` if one runs."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / "lock").open("w", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise BackupError(f"A hub is running with the state folder {self._folder}. Stop it first.") from exc
            yield

    def write_settings(self, settings: dict[str, str]) -> bool:  # noqa: ARG002 - it has no such files
        """Return False: everything is in the state folder."""
        return False

    def count_homes(self) -> int:
        """Return the number of homes."""
        return len(self.source().folders)

    def count_users(self) -> int:
        """Return 0, because the users are in the SQLite database."""
        return 0

    def prepare(self, manifest: Manifest) -> dict[str, tuple[str, str]]:
        """Return the folders of the homes."""
        parts = [part.name for part in manifest.parts if part.name.startswith(HOME)]
        return {part: (str(self._folder / HOMES), part.removeprefix(HOME)) for part in parts}

    def restore_database(self, dump: str) -> None:  # noqa: ARG002 - only PostgreSQL has one
        """Raise `BackupError`, because the database is a file."""
        raise BackupError("The backup has a dump of PostgreSQL, which a hub without containers does not use.")
