"""Runs restic with the repositories of a mirror, and explains why a mirror cannot be used."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

from hub.services.snapshots.mirrors.place import MirrorError
from hub.services.snapshots.restic import MOST_SHOWN, ResticError, run_restic

if TYPE_CHECKING:
    from pathlib import Path

    from hub.services.snapshots.mirrors.place import MirrorPlace

HOUR = 3600.0
SECONDS = 24 * HOUR
"""The first copy of a large repository over a slow line takes long. What has been copied stays if it is cut off."""
FULL = r"no space left on device|[qQ]uota ?exceeded|response.*\b507\b"
REFUSED = r"response.*\b40[13]\b|Access ?Denied|Access ?Key ?Id|SignatureDoesNotMatch|permission denied"
AWAY = r"connection (refused|reset)|no such host|i/o timeout|response.*\b50[0234]\b"
PASSWORD = r"wrong password or no key found"
MISSING = r"Is there a repository at the following location"
HOPELESS = re.compile(f"{FULL}|{REFUSED}")


class MissingError(ResticError):
    """Raised when the mirror has no repository with a name."""


class MirrorRestic:
    """Runs restic with the repositories at a place, all of which have the password in ``password_file``.

    ``hubs_password_file`` contains the password of the hub's own repositories. All methods raise `MirrorError` if the
    place cannot be used, and `ResticError` if only this repository cannot.
    """

    def __init__(self, place: MirrorPlace, password_file: Path, hubs_password_file: Path) -> None:
        self._place = place
        self._password_file = password_file
        self._hubs_password_file = hubs_password_file

    async def exists(self, name: str) -> bool:
        """Open a repository of the mirror, and return whether there is one."""
        try:
            await self._run("cat", "config", "--no-lock", name=name)
        except MissingError:
            return False
        except ResticError as exc:
            if not re.search(PASSWORD, exc.output):
                raise
            raise MirrorError(
                f"The password in {self._password_file} does not open the mirror at {self._place.address}. Put back "
                "the file with which the mirror was created, or choose another place for a new mirror."
            ) from exc
        return True

    async def init(self, name: str, like: Path | None = None) -> None:
        """Create a repository, in which equal content is stored once if it comes from the repository ``like``."""
        options = self._from(like, "--copy-chunker-params") if like else ()
        folder = self._place.folder
        if folder is None:
            await self._run("init", *options, name=name)
            return
        # restic writes the key first. One that is killed here must leave no key, which would not fit the next
        # configuration. Another hub forgets such a key, see `MirrorRepositoryHandler`.
        part = folder / f".{name}"
        await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
        await self._run("init", *options, name=part.name)
        part.rename(folder / name)

    async def copy(self, folder: Path, name: str) -> None:
        """Copy the snapshots in one of the hub's repositories that the mirror does not have yet.

        No lock keeps the hub from pruning the repository meanwhile, and users may go on to add to it.
        """
        await self._run("copy", *self._from(folder, "--no-lock"), name=name)

    async def backup(self, folder: Path, name: str) -> None:
        """Add a snapshot with the content of a folder."""
        await self._run("backup", "--host", "hub", "--ignore-inode", ".", name=name, cwd=folder)

    async def snapshots(self, name: str) -> list[dict[str, Any]]:
        """Return restic's records of all snapshots of a repository of the mirror."""
        found: list[dict[str, Any]] = json.loads(await self._run("snapshots", "--no-lock", "--json", name=name)) or []
        return found

    async def check(self, name: str, *, read_data: bool) -> None:
        """Check a repository of the mirror, and each byte of its files if ``read_data`` is true.

        Locks, which a killed hub may have left there, do not matter: only this hub changes its mirror.
        """
        await self._run("check", "--no-lock", *(("--read-data",) if read_data else ()), name=name)

    async def restore(self, name: str, folder: Path) -> None:
        """Copy the snapshots of the mirror to one of the hub's repositories."""
        hub = {"RESTIC_REPOSITORY": str(folder), "RESTIC_PASSWORD_FILE": str(self._hubs_password_file)}
        mirror = {f"RESTIC_FROM_{key.removeprefix('RESTIC_')}": value for key, value in self._repository(name).items()}
        await self._explained("copy", environment={**hub, **mirror})

    def _from(self, folder: Path, *options: str) -> tuple[str, ...]:
        return ("--from-repo", str(folder), "--from-password-file", str(self._hubs_password_file), *options)

    def _repository(self, name: str) -> dict[str, str]:
        return {
            "RESTIC_REPOSITORY": self._place.repository(name),
            "RESTIC_PASSWORD_FILE": str(self._password_file),
        }

    async def _run(self, command: str, *arguments: str, name: str, cwd: Path | None = None) -> str:
        return await self._explained(command, *arguments, environment=self._repository(name), cwd=cwd)

    async def _explained(
        self, command: str, *arguments: str, environment: dict[str, str], cwd: Path | None = None
    ) -> str:
        # The address and the login are in the environment, because other users of a machine see command lines.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RESTIC_", "FARANDOLE_"))}
        try:
            return await run_restic(
                command,
                *arguments,
                environment={**kept, **self._place.environment, **environment},
                cwd=cwd,
                seconds=SECONDS,
                hopeless=HOPELESS,
            )
        except ResticError as exc:
            raise self._error(exc) from exc

    def _error(self, error: ResticError) -> MirrorError | ResticError:
        place, output = self._place.address, error.output
        if self._place.secret:
            output = output.replace(self._place.secret, "***")
        said = summary(output)
        if re.search(FULL, output):
            return MirrorError(f"The mirror at {place} is full: {said}. Make room there. What it has stays.")
        if re.search(REFUSED, output):
            return MirrorError(
                f"The mirror at {place} refuses the hub: {said}. Check FARANDOLE_SNAPSHOTS_MIRROR_USER and "
                "FARANDOLE_SNAPSHOTS_MIRROR_SECRET, or the permissions of the folder."
            )
        if re.search(AWAY, output):
            return MirrorError(f"The mirror at {place} does not answer: {said}. The hub tries again within an hour.")
        if re.search(MISSING, output):
            return MissingError("The mirror has no such repository.", output)
        return ResticError(said if output else str(error), output)


def summary(output: str) -> str:
    """Return the line that says best why restic failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("Fatal: ")]
    retried = [line.partition("retrying after")[2].partition(": ")[2] for line in lines if "retrying after" in line]
    text = ([each for each in fatal if "signal" not in each] or retried or lines or ["restic gave no reason"])[0]
    return text.removeprefix("Fatal: ").rstrip(".")[:MOST_SHOWN]
