"""The program restic, which the service runs on the folders of repositories with the hub's own key."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping
    from pathlib import Path

# A killed service takes its restic with it, so that no other process changes a repository when it starts again.
COMMAND = ("setpriv", "--pdeathsig", "KILL", "nice", "restic", "--no-cache", "--quiet")
SECONDS = 3600.0
LONGEST_LINE = 1 << 20
MOST_SHOWN = 500


class ResticError(RuntimeError):
    """Raised when restic fails. The message is the end of ``output``, which is all that it reported."""

    def __init__(self, message: str, output: str = "") -> None:
        """Keep what restic reported."""
        super().__init__(message)
        self.output = output


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

    async def _run(self, folder: Path, command: str, *arguments: str) -> str:
        options = ("--repo", str(folder), "--password-file", str(self.password_file))
        return await run_restic(command, *options, *arguments)


async def run_restic(
    command: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float = SECONDS,
    hopeless: re.Pattern[str] | None = None,
) -> str:
    """Run a command of restic and return its output; raises `ResticError`.

    restic tries for about a minute to overcome each problem. It is ended at once if a problem matches ``hopeless``.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        command,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        env=environment,
        cwd=cwd,
        limit=LONGEST_LINE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            output, errors = await asyncio.gather(process.stdout.read(), _errors(process, hopeless))
            await process.wait()
    except TimeoutError as exc:
        raise ResticError(f"restic {command} took longer than {seconds:.0f} s") from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ResticError(f"restic {command}: {errors.strip()[-MOST_SHOWN:]}", errors)
    return output.decode()


async def _errors(process: asyncio.subprocess.Process, hopeless: re.Pattern[str] | None) -> str:
    """Return what restic reports. Interrupt it, so that it removes its locks, if it would retry in vain."""
    lines = []
    assert process.stderr is not None
    async for line in process.stderr:
        lines.append(line.decode(errors="replace"))
        if hopeless and "retrying after" in lines[-1] and hopeless.search(lines[-1]):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
    return "".join(lines)
