"""What a backup needs from each kind of hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hub.backup.job import Job
    from hub.backup.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a hub has now; the fields are those of `Job`."""

    folders: dict[str, tuple[str, str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    dump: str = field(default="", repr=False)
    schema: str = ""


class Site(Protocol):
    """A hub, from the operator's point of view. All methods raise `BackupError`."""

    @property
    def deployment(self) -> str:
        """The value of FARANDOLE_DEPLOYMENT, or an empty string on a machine without settings."""

    @property
    def database(self) -> str:
        """The kind of the database, as in a manifest."""

    @property
    def state(self) -> str:
        """The path of the state folder for a process that `run` starts."""

    @property
    def password_file(self) -> Path:
        """Where the passphrase of backups is unless a setting says otherwise."""

    def setting(self, key: str) -> str:
        """Return a FARANDOLE_ setting of the operator, or an empty string."""

    def source(self) -> Source:
        """Return what is to be backed up; the hub may run."""

    def run(self, job: Job) -> dict[str, Any]:
        """Do a step of a backup where the hub's volumes are, and return its result."""

    def stopped(self) -> AbstractContextManager[None]:
        """Return a context in which the hub is restored; raises `BackupError` if it or a user's server runs."""

    def write_settings(self, settings: dict[str, str]) -> bool:
        """Write the operator's files of a backup, but replace none that exists. Return whether the settings are new."""

    def count_homes(self) -> int:
        """Return the number of homes and group folders."""

    def count_users(self) -> int:
        """Return the number of users in a database that is no file in the state folder."""

    def prepare(self, manifest: Manifest) -> dict[str, tuple[str, str]]:
        """Create what is missing for a restore, and return the folders of its parts."""

    def restore_database(self, dump: str) -> None:
        """Replace the content of the database by a dump, in one transaction."""
