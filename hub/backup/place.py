"""Where the backups of a hub are, and the file with the passphrase that encrypts them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from hub.services.snapshots.mirrors.place import REST, S3, MirrorPlace
from spawner_config.settings import ensure_secret

PASSWORD_FILE, USER, SECRET = "FARANDOLE_BACKUP_PASSWORD_FILE", "FARANDOLE_BACKUP_USER", "FARANDOLE_BACKUP_SECRET"
CLAIM = "claim:"
"""How a place on Kubernetes begins that is a volume claim."""
REMOTE = re.compile(r"rest:https?://[^/]+/.*|s3:(https?://)?[^/]+/.+|claim:[a-z0-9.-]+", re.DOTALL)
LOGIN = re.compile(r"[a-z0-9]+:(https?://)?[^/]*@")


class BackupError(RuntimeError):
    """Raised when a hub cannot be backed up or restored. The message says what the operator can do."""


@dataclass(frozen=True, kw_only=True)
class BackupPlace:
    """A folder, a server with restic's REST protocol, a bucket of S3, or a volume claim on Kubernetes.

    ``address`` contains no login. The file ``password_file`` has the passphrase of all backups there.
    """

    address: str
    password_file: Path
    user: str = ""
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Raise `BackupError` if the address is none."""
        if LOGIN.match(self.address):
            raise BackupError(f"The address of the backups has a login. Remove it, and set {USER} and {SECRET}.")
        if not self.address.startswith("/") and not REMOTE.fullmatch(self.address):
            raise BackupError(
                f"{self.address!r} is no place for backups. Name a folder, rest:https://HOST/PATH, "
                "s3:https://HOST/BUCKET/FOLDER or, on Kubernetes, claim:NAME."
            )

    @property
    def folder(self) -> Path | None:
        """The folder on this machine, or None if the place is elsewhere."""
        return Path(self.address) if self.address.startswith("/") else None

    def at(self, address: str) -> MirrorPlace:
        """Return the place under the address that it has for a process which makes backups."""
        return MirrorPlace(address=address, user=self.user, secret=self.secret)

    def passphrase(self, *, create: bool = False) -> str:
        """Return the passphrase; with ``create``, make the file if it does not exist. Raises `BackupError`."""
        path = self.password_file
        if not path.exists() and not create:
            raise BackupError(
                f"There is no file {path} with the passphrase of the backups. Copy it there, or set {PASSWORD_FILE} "
                "to its path."
            )
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = ensure_secret(path)
        except OSError as exc:
            raise BackupError(f"The file {path} with the passphrase of the backups: {exc.strerror}.") from exc
        if not text:
            raise BackupError(f"The file {path} is empty. It has to contain the passphrase of the backups.")
        return text


def read_address(text: str) -> str:
    """Return the address of a place, in which a folder has its full path."""
    if text.startswith((REST, S3, CLAIM)):
        return text.rstrip("/")
    return str(Path(text).expanduser().resolve()) if text else text
