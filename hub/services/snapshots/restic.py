"""The program restic, which the service runs on the folders of repositories with the hub's own key."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# A killed service takes its restic with it, so that no other process changes a repository when it starts again.
COMMAND = ("setpriv", "--pdeathsig", "KILL", "nice", "restic", "--no-cache", "--quiet")
SECONDS = 3600.0


class ResticError(RuntimeError):
    """Raised when restic fails; the message is the end of what it printed."""


@dataclass(frozen=True, kw_only=True)
class Restic:
    """Runs restic; ``password_file`` contains the hub's password of all repositories."""

    password_file: Path

    async def init(self, folder: Path) -> None:
        """Create a repository."""
        await self._run(folder, "init")

    async def add_key(self, folder: Path, user: str, password_file: Path) -> None:
        """Add a key with the password in this file."""
        name = ("--user", user, "--host", "hub")
        await self._run(folder, "key", "add", *name, "--new-password-file", str(password_file))

    async def snapshots(self, folder: Path) -> list[dict[str, Any]]:
        """Return restic's records of all snapshots, among them ``id`` and ``tags``."""
        found: list[dict[str, Any]] = json.loads(await self._run(folder, "snapshots", "--no-lock", "--json")) or []
        return found

    async def forget(self, folder: Path, ids: list[str]) -> None:
        """Remove snapshots, and what only they use."""
        await self._run(folder, "forget", "--prune", *ids)

    async def _run(self, folder: Path, *arguments: str) -> str:
        options = ("--repo", str(folder), "--password-file", str(self.password_file))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *options, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(), SECONDS)
        except TimeoutError as exc:
            raise ResticError(f"restic {arguments[0]} took longer than {SECONDS:.0f} s") from exc
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise ResticError(f"restic {arguments[0]}: {errors.decode(errors='replace').strip()[-500:]}")
        return output.decode()
