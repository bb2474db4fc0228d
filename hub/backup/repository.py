"""The repository of restic that has all backups at a place, and why it cannot be used."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hub.backup.place import PASSWORD_FILE, SECRET, USER, BackupError
from hub.services.snapshots.mirrors.restic import AWAY, FULL, MISSING, PASSWORD, REFUSED, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hub.services.snapshots.mirrors.place import MirrorPlace

# A backup that is killed takes its restic with it.
COMMAND = ("setpriv", "--pdeathsig", "KILL", "nice", "restic", "--no-cache", "--quiet")
NAME = "farandole"
"""The name of the repository at its place."""
HOST = "hub"
HOPELESS = re.compile(f"{FULL}|{REFUSED}|{AWAY}|no such file or directory")
"""Problems that restic would try to overcome for up to 15 minutes."""
LOCKED = r"already locked|unable to create lock"
MOST_IDS = 500
"""How many snapshots one command line names."""
INCOMPLETE = 3
"""restic's exit code of a snapshot without some files, which it could not read."""


class MissingRepositoryError(BackupError):
    """Raised when there is no repository at the place."""


class EmptyFolderError(BackupError):
    """Raised when a folder is empty, of which restic makes no snapshot."""


class LockedError(BackupError):
    """Raised when another process has locked the repository."""


EXPLANATIONS: tuple[tuple[str, type[BackupError], str], ...] = (
    (r"snapshot is empty", EmptyFolderError, "The folder is empty."),
    (
        MISSING,
        MissingRepositoryError,
        "There is no backup at {place}. Check the address, or mount its disk.",
    ),
    (
        PASSWORD,
        BackupError,
        (
            "The passphrase does not open the backups at {place}. Put back the file with which they were made, or set "
            f"{PASSWORD_FILE} to its path."
        ),
    ),
    (FULL, BackupError, "There is no room left: {said}. Make room, and try again. Earlier backups stay."),
    (
        LOCKED,
        LockedError,
        (
            "Another process uses the backups at {place}: {said}. Try again when it has finished, or after half an "
            "hour if it was killed."
        ),
    ),
    (
        REFUSED,
        BackupError,
        (
            "The place {place} refuses the hub: {said}. User id 1000 must own a folder (chown 1000:1000); elsewhere, "
            f"check {USER} and {SECRET}."
        ),
    ),
    (AWAY, BackupError, "The place {place} does not answer: {said}. Check the address and the network."),
)
"""For each pattern in what restic reports, the error and its message."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A new snapshot; ``unread`` are the problems with files that could not be read."""

    id: str
    bytes: int
    files: int
    unread: Sequence[str]


class Repository:
    """Runs restic with the repository at a place. All methods raise `BackupError` if it cannot be used."""

    def __init__(self, place: MirrorPlace, passphrase: str) -> None:
        self.place = place
        self._passphrase = passphrase

    def create(self) -> None:
        """Create the repository. A process that is killed here leaves none."""
        self._check_folder()
        folder = self.place.folder
        if folder is None:
            self._run("init")
            return
        # restic writes the key first. One that is killed here must leave no key, which would not fit the next one.
        part = folder / f".{NAME}"
        shutil.rmtree(part, ignore_errors=True)
        self._run("init", name=part.name)
        part.rename(folder / NAME)

    def unlock(self) -> None:
        """Remove the locks of processes that have ended."""
        self._run("unlock")

    def back_up(self, folder: Path, tags: Sequence[str], *, parent: str = "", exclude: Sequence[str] = ()) -> Snapshot:
        """Add a snapshot with the content of a folder, which only differs from the snapshot ``parent`` in some files.

        ``exclude`` are patterns of paths below the folder.
        """
        options = [*(f"--tag={tag}" for tag in tags), *(f"--exclude={folder}/{each}" for each in exclude)]
        if parent:
            options.append(f"--parent={parent}")
        words = ("--json", "--host", HOST, *options, ".")
        output, problems = self._run("backup", *words, cwd=folder, accepted=(0, INCOMPLETE))
        found = next((each for each in _json_lines(output) if each.get("message_type") == "summary"), None)
        if found is None:
            raise self._error("\n".join(problems))
        return Snapshot(
            id=str(found["snapshot_id"]),
            bytes=int(found["total_bytes_processed"]),
            files=int(found["total_files_processed"]),
            unread=[text for line in problems if (text := _unread(line))],
        )

    def snapshots(self, *tags: str) -> list[dict[str, Any]]:
        """Return restic's records of all snapshots with these tags, the oldest first.

        Raises `MissingRepositoryError` if there is no repository, and other subclasses of `BackupError`.
        """
        self._check_folder()
        chosen = (f"--tag={','.join(tags)}",) if tags else ()
        output, _ = self._run("snapshots", "--json", "--no-lock", *chosen)
        found: list[dict[str, Any]] = json.loads(output) or []
        return sorted(found, key=lambda each: str(each["time"]))

    def read(self, snapshot: str, path: str) -> str:
        """Return the text of a file in a snapshot."""
        output, _ = self._run("dump", "--no-lock", snapshot, f"/{path}")
        return output

    def names(self, snapshot: str) -> list[str]:
        """Return the names of all files in a snapshot that has no folders."""
        output, _ = self._run("ls", "--no-lock", "--json", snapshot)
        return [str(each["name"]) for each in _json_lines(output) if each.get("type") == "file"]

    def restore(self, snapshot: str, folder: Path) -> None:
        """Write the content of a snapshot into a folder."""
        self._run("restore", "--no-lock", snapshot, "--target", str(folder))

    def forget(self, snapshots: Sequence[str]) -> None:
        """Remove snapshots, and the data that no other snapshot has."""
        for begin in range(0, len(snapshots), MOST_IDS):
            self._run("forget", *snapshots[begin : begin + MOST_IDS])
        self._run("prune")

    def _check_folder(self) -> None:
        if self.place.folder is not None and not self.place.folder.is_dir():
            raise BackupError(
                f"The folder {self.place.address} for backups does not exist. Create it, or mount its disk."
            )

    def _run(
        self,
        command: str,
        *arguments: str,
        name: str = NAME,
        cwd: Path | None = None,
        accepted: Sequence[int] = (0,),
    ) -> tuple[str, list[str]]:
        """Run a command of restic, and return its output and the lines of its standard error."""
        with tempfile.TemporaryFile() as output:
            with _running([*COMMAND, command, *arguments], output, self._environment(name), cwd) as process:
                problems = _problems(process)
                code = process.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
        if code not in accepted:
            raise self._error("\n".join([*problems, *text.splitlines()[-5:]]))
        return text, problems

    def _environment(self, name: str) -> dict[str, str]:
        # Other users of a machine see command lines, but no environments.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RESTIC_", "FARANDOLE_"))}
        ours = {"RESTIC_REPOSITORY": self.place.repository(name), "RESTIC_PASSWORD": self._passphrase}
        return {**kept, **self.place.environment, **ours}

    def _error(self, output: str) -> BackupError:
        place = self.place.address
        said = summary(output.replace(self.place.secret, "***") if self.place.secret else output)
        for pattern, kind, message in EXPLANATIONS:
            if re.search(pattern, output):
                return kind(message.format(place=place, said=said))
        return BackupError(f"restic failed with the backups at {place}: {said}.")


@contextmanager
def _running(
    command: Sequence[str], output: IO[bytes], environment: dict[str, str], cwd: Path | None
) -> Iterator[subprocess.Popen[str]]:
    if not shutil.which("restic"):
        raise BackupError("The program restic is missing. Install it: apt-get install restic")
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
        cwd=cwd,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _problems(process: subprocess.Popen[str]) -> list[str]:
    """Return what restic reports. Interrupt it, so that it removes its lock, if it would retry in vain."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if "retrying after" in line and HOPELESS.search(line):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
    return lines


def _json_lines(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _unread(line: str) -> str:
    """Return the path in a line of restic's standard error that reports a file which it could not read."""
    if not line.startswith("{"):
        return ""
    found = json.loads(line)
    return str(found.get("item", "")) if found.get("message_type") == "error" else ""
