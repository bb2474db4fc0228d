"""Writes the configuration with which the hub's NATS server starts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spawner_config.streams.certificates import server_certificate
from spawner_config.streams.claims import operator_claims, system_account_claims

if TYPE_CHECKING:
    from spawner_config.streams.keys import Keys

MEMORY_BYTES = 64 << 20
"""Memory for streams in memory, which no account may have; the server refuses 0."""
DISK_BYTES = 1 << 60
"""JetStream's limit on disk space, which is larger than any disk.

The server reserves the limit of each account, even of those without streams, and gives no streams to accounts whose
limit no longer fits. With the size of the disk, a hub would have streams for its first few users only.
"""
LOOKUP = "100ms"
"""How long the NATS server asks others about an unknown account. There are no others."""
TLS_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class ServerPlace:
    """Where a server listens and keeps its files.

    Attributes:
        folder: the folder of all its files. Streams are in ``jetstream``, the claims of accounts in ``accounts``.
        listen: the address and the port.
        names: the host names and IP addresses of its certificate. Without any, connections are not encrypted.
    """

    folder: Path
    listen: str
    names: tuple[str, ...] = ()

    def make(self) -> None:
        """Create the folder, which only its owner can access."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, keys: Keys) -> Path:
        """Write the configuration, and a new certificate if the server has names. Return the configuration's path."""
        found = {
            "server_name": "farandole",
            "listen": self.listen,
            "operator": operator_claims(keys),
            "system_account": keys.system.public,
            "resolver": {"type": "full", "dir": str(self.folder / "accounts"), "allow_delete": True, "timeout": LOOKUP},
            "resolver_preload": {keys.system.public: system_account_claims(keys)},
            "jetstream": {
                "store_dir": str(self.folder),
                "max_memory_store": MEMORY_BYTES,
                "max_file_store": DISK_BYTES,
            },
            **({"tls": self._tls(keys)} if self.names else {}),
        }
        path = self.folder / "nats-server.conf"
        # The syntax of the server's configuration includes JSON, but not its escapes of characters such as é.
        _write_private(path, json.dumps(found, indent=1, ensure_ascii=False))
        return path

    def _tls(self, keys: Keys) -> dict[str, Any]:
        certificate, key = server_certificate(keys.authority, self.names)
        paths = self.folder / "tls.crt", self.folder / "tls.key"
        for path, content in zip(paths, (certificate, key), strict=True):
            _write_private(path, content)
        return {"cert_file": str(paths[0]), "key_file": str(paths[1]), "timeout": TLS_SECONDS}


def _write_private(path: Path, content: str) -> None:
    """Write a file that only its owner can read, also if the file exists with another mode."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(content, encoding="utf-8")
