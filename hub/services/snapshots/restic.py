"""The program restic, which the service runs on the folders of repositories with the hub's own key."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# A killed service takes its restic with it, so that no other process changes a repository when it starts again. The
# stacks of threads count for the memory of restic, and would by default have 8 MiB each.
COMMAND = ("setpriv", "--pdeathsig", "KILL", "nice", "prlimit", f"--stack={1 << 20}")
CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The memory limits of a container, in the second and in the first version of cgroups."""
SECONDS = 3600.0
LONGEST_LINE = 1 << 20
MOST_LINES = 1000
MOST_OUTPUT = 32 << 20
MOST_SHOWN = 500
MOST_NAMES = 4_000_000
"""The number of names that `Names` keeps, which take some 400 MB."""
PACK = re.compile(r"pack ([0-9a-f]{64}) contains")
NO_MEMORY = re.compile(r"out of memory|cannot allocate memory")


class ResticError(RuntimeError):
    """Raised when restic fails. The message is the end of ``output``, which is all that it reported."""

    def __init__(self, message: str, output: str = "") -> None:
        """Keep what restic reported."""
        super().__init__(message)
        self.output = output


PROBLEMS = (ResticError, OSError, ValueError)
"""What can be wrong with one repository."""


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

    async def check_copies(self, folder: Path) -> None:
        """Read all data if some of it is there more than once; raises `ResticError` if something is not what it claims.

        When restic prunes, it keeps one of several copies, and reads none of them. A program with a user's password can
        add a file that claims to contain what another one contains, so that restic would remove the true one.
        """
        names = Names()
        await self._run(folder, "list", "blobs", "--no-lock", lines=names.add)
        if not names.repeated:
            return
        try:
            await self._run(folder, "check", "--no-lock", "--read-data")
        except ResticError as exc:
            if not (packs := PACK.findall(exc.output)):
                raise
            raise ResticError(f"files in data do not contain what they claim: {', '.join(packs)}", exc.output) from exc

    async def _run(
        self, folder: Path, command: str, *arguments: str, lines: Callable[[bytes], None] | None = None
    ) -> str:
        options = ("--repo", str(folder), "--password-file", str(self.password_file))
        return await run_restic(command, *options, *arguments, lines=lines)


class Names:
    """Whether a name is repeated in a list of names of 256 bits. Of a list that is too long, it is assumed."""

    def __init__(self) -> None:
        """Begin with an empty list."""
        self.repeated = False
        self._seen: set[int] = set()

    def add(self, line: bytes) -> None:
        """Add the name at the end of a line. Its last 64 bits are enough: names that share them do no harm."""
        name = int(line[-17:], 16)
        self.repeated |= name in self._seen or len(self._seen) >= MOST_NAMES
        if not self.repeated:
            self._seen.add(name)


async def run_restic(
    command: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float = SECONDS,
    hopeless: re.Pattern[str] | None = None,
    memory: int | None = None,
    lines: Callable[[bytes], None] | None = None,
) -> str:
    """Run a command of restic and return its output; raises `ResticError`.

    - If ``lines`` is given, it gets each line of the output, and nothing is returned.
    - restic tries for about a minute to overcome each problem. It is ended at once if a problem matches ``hopeless``.
    - It may use ``memory`` bytes, by default `memory_limit`. A small file of a user can expand to gigabytes, for which
      the system would otherwise end processes of the hub.
    """
    memory = memory_limit() if memory is None else memory
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        f"--data={memory}",
        "restic",
        "--no-cache",
        "--quiet",
        command,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        env=environment,
        cwd=cwd,
        limit=LONGEST_LINE,
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await asyncio.gather(_output(process, command, lines), _errors(process, hopeless))
            await process.wait()
    except TimeoutError as exc:
        raise ResticError(f"restic {command} took longer than {seconds:.0f} s") from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode and NO_MEMORY.search(errors):
        raise ResticError(f"restic {command} needs more than {memory} bytes of memory", errors)
    if process.returncode:
        raise ResticError(f"restic {command}: {errors.strip()[-MOST_SHOWN:]}", errors)
    return output.decode()


def memory_limit(cgroups: Iterable[Path] = CGROUPS) -> int:
    """Return half of the bytes of memory that this container or machine has."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in cgroups:
        # A machine has no such file, and a container without a limit has "max" in it.
        with suppress(OSError, ValueError):
            found.append(int(file.read_text(encoding="ascii")))
    return min(found) // 2


async def _output(process: asyncio.subprocess.Process, command: str, lines: Callable[[bytes], None] | None) -> bytes:
    """Return what restic prints; raises `ResticError` if it is more than this process should keep."""
    output = b""
    assert process.stdout is not None
    if lines is not None:
        async for line in process.stdout:
            lines(line)
    while chunk := await process.stdout.read(LONGEST_LINE):
        output += chunk
        if len(output) > MOST_OUTPUT:
            raise ResticError(f"restic {command} prints more than {MOST_OUTPUT} bytes")
    return output


async def _errors(process: asyncio.subprocess.Process, hopeless: re.Pattern[str] | None) -> str:
    """Return what restic reports. Interrupt it, so that it removes its locks, if it would retry in vain."""
    lines: deque[str] = deque(maxlen=MOST_LINES)
    assert process.stderr is not None
    while line := await _line(process.stderr):
        lines.append(line.decode(errors="replace"))
        if hopeless and "retrying after" in lines[-1] and hopeless.search(lines[-1]):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
    return "".join(lines)


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or of a line that is too long the rest; nothing at the end."""
    while True:
        with suppress(ValueError):
            return await stream.readline()
