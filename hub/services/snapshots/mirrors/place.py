"""Where a mirror is: the addresses of its repositories for restic, and whether the place can be reached."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

CONNECT_SECONDS = 10.0
REST, S3 = "rest:", "s3:"


class MirrorError(RuntimeError):
    """Raised when nothing can be mirrored for now. The message says what the operator can do."""


@dataclass(frozen=True, kw_only=True)
class MirrorPlace:
    """A folder, another hub or a bucket of S3, and the login there, which is no part of the address."""

    address: str
    user: str = ""
    secret: str = field(default="", repr=False)

    def repository(self, name: str) -> str:
        """Return restic's address of a repository, which may contain the secret."""
        if not self.address.startswith(REST):
            return f"{self.address}/{name}"
        parts = urlsplit(self.address.removeprefix(REST))
        login = f"{quote(self.user, safe='')}:{quote(self.secret, safe='')}@" if self.user else ""
        return f"{REST}{parts.scheme}://{login}{parts.netloc}{parts.path}/{name}/"

    @property
    def folder(self) -> Path | None:
        """The folder, or None if the place is none."""
        return None if self.address.startswith((REST, S3)) else Path(self.address)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which restic logs in to S3."""
        if not self.address.startswith(S3) or not self.user:
            return {}
        return {"AWS_ACCESS_KEY_ID": self.user, "AWS_SECRET_ACCESS_KEY": self.secret}

    def check(self) -> None:
        """Raise `MirrorError` if the place cannot be reached, which restic would try for about a minute."""
        if self.folder is None:
            self._connect()
        elif not self.folder.is_dir():
            raise MirrorError(
                f"The folder {self.address} for the mirror does not exist. Create it, or mount its disk, so that the "
                "hub can write to it."
            )

    def _connect(self) -> None:
        # Backups use this module on machines without packages.
        from spawner_config.snapshots.mirrors import host_and_port

        try:
            socket.create_connection(host_and_port(self.address), CONNECT_SECONDS).close()
        except (OSError, UnicodeError) as exc:
            # A host name with a label that is too long is a UnicodeError.
            raise MirrorError(
                f"The mirror at {self.address} cannot be reached: {exc}. Check FARANDOLE_SNAPSHOTS_MIRROR and the "
                "network. The hub tries again within an hour."
            ) from exc
