"""Runs the program restic, and turns what it reports into errors for the user.

Neither the address of the repository, which contains the user's token, nor the password is on the command line or in a
file on disk: restic reads both from files in memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from farandole.exceptions import SnapshotError
from farandole.files.private import private_folder
from farandole.snapshots.connection import Repository
from farandole.snapshots.failures import PERMANENT, restic_error

HOST = "farandole"
"""The host of all snapshots. Servers have other names each time, and restic compares with the snapshot of a host."""
STOP_SECONDS = 20.0
"""How long restic may take to remove its lock before it is killed."""
MOST_LINES = 100_000
"""The lines of problems that are kept."""
OTHER_WAYS = re.compile("RESTIC_.*|.*_PROXY|PWD", re.IGNORECASE)
"""Environment variables that would lead restic to another repository, or the user's token to another machine.

PWD may be a symbolic link to the home, and the patterns of what is left out begin with the home's real path."""
ENDS_WITH_THREAD = ("setpriv", "--pdeathsig", "INT")
"""Interrupts a program when the thread that started it ends, also if the process of the thread is killed."""
RUNNING: dict[subprocess.Popen[bytes], threading.Thread] = {}
"""The processes of restic, and the threads that wait for them."""
BACKGROUND = ("nice", "-n", "19", "ionice", "-t", "-c", "3")
"""Runs a program when nobody else needs the processor or the disk."""


@dataclass
class Output:
    """The output of restic while it runs.

    Attributes:
        stdout: its standard output.
        problems: lines of its standard error. They are complete after the end.
        code: its exit code. It is set at the end.
    """

    stdout: IO[bytes]
    problems: list[str] = field(default_factory=list)
    code: int = 0


class Restic:
    """The program restic with a repository, which ``connect`` returns.

    In the ``background`` it uses one core at the lowest priority. restic ends with the thread that runs it.

    Raises `SnapshotError` if restic is not installed, or if there is no repository.
    """

    def __init__(self, connect: Callable[[], Repository], *, background: bool = False) -> None:
        program = shutil.which("restic")
        if not program:
            raise SnapshotError(
                "restic is not installed on this server. Ask the hub's administrator to add the Debian package "
                "`restic` to its image."
            )
        self._command = [*ENDS_WITH_THREAD, *(BACKGROUND if background else ()), program]
        # With fewer garbage collections, restic computes a little less, and needs hardly more memory.
        self._variables = {"GOGC": "200", **({"GOMAXPROCS": "1"} if background else {})}
        self._repository = connect()

    def records(self, *words: str) -> list[Any]:
        """Run a command of restic, and return the JSON of each line of its output."""
        with self.running(*words) as output:
            return [json.loads(line) for line in output.stdout if line.strip()]

    @contextmanager
    def running(self, *words: str, cwd: Path | None = None, accepted: Sequence[int] = (0,)) -> Iterator[Output]:
        """Run a command of restic, and yield its output.

        Raises `SnapshotError` at the end if the exit code is not an accepted one. If the caller is interrupted, restic
        is stopped, so that it removes its lock.
        """
        with _memory_file(self._repository.url) as url, _memory_file(self._repository.password) as password:
            process = subprocess.Popen(
                [*self._command, *_options(_path(url), _path(password)), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env={**_environment(self._repository), **self._variables},
                pass_fds=(url, password),
                # Jupyter interrupts all processes of the kernel's group, and then would stop restic a second time.
                process_group=0,
            )
            assert process.stdout is not None
            assert process.stderr is not None
            output = Output(process.stdout)
            reader = threading.Thread(target=_read_problems, args=(process, process.stderr, output.problems))
            reader.start()
            RUNNING[process] = threading.current_thread()
            try:
                yield output
                output.code = process.wait()
            finally:
                _stop(process)
                reader.join()
                process.stdout.close()
                del RUNNING[process]
        if output.code == -signal.SIGKILL:
            raise SnapshotError(
                "restic was killed, probably because the memory of your server is used up. Shut down kernels that you "
                "do not need, and try again."
            )
        if output.code not in accepted:
            raise restic_error(output.problems)


def interrupt(threads: Collection[threading.Thread]) -> None:
    """Interrupt restic in these threads, which then raise `SnapshotError`."""
    for process, thread in list(RUNNING.items()):
        if thread in threads:
            process.send_signal(signal.SIGINT)


def _environment(repository: Repository) -> dict[str, str]:
    """Return the environment of restic, in which only the repository's own proxy is named."""
    kept = {name: value for name, value in os.environ.items() if not OTHER_WAYS.fullmatch(name)}
    return {**kept, "HTTP_PROXY": repository.proxy} if repository.proxy else kept


def _read_problems(process: subprocess.Popen[bytes], stderr: IO[bytes], problems: list[str]) -> None:
    """Collect lines of restic's standard error. Stop restic if it would retry what cannot succeed."""
    with stderr:
        for line in stderr:
            text = line.decode(errors="replace").rstrip("\n")
            if len(problems) < MOST_LINES:
                problems.append(text)
            if "retrying after" in text and PERMANENT.search(text):
                process.send_signal(signal.SIGINT)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt restic if it still runs, and wait for its end. It then removes its lock."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _memory_file(text: str) -> Iterator[int]:
    """Yield the descriptor of a file in memory, which only this process and those that inherit it can open."""
    with os.fdopen(os.memfd_create("snapshots"), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.fileno()


def _options(url: str, password: str) -> list[str]:
    """Return the options of each command. The cache is not in the home, which may have no room."""
    cache = str(private_folder("farandole-snapshots"))
    return ["--repository-file", url, "--password-file", password, "--cache-dir", cache, "--json"]


def _path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
