"""Background programs that outlive their starter and are stopped by process id."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docker.engines.debian import SetUpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

START_SECONDS = 90.0
STOP_SECONDS = 60.0


def wait_for(happened: Callable[[], bool], what: str, seconds: float) -> None:
    """Return once ``happened()`` is true; raises `SetUpError` that names ``what`` after ``seconds``."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            raise SetUpError(f"{what} took more than {seconds:.0f} s.")
        time.sleep(0.1)


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A background program, identified by the ``folder`` in its command line because process ids are reused."""

    name: str
    folder: Path
    command: tuple[str, ...]

    @property
    def log(self) -> Path:
        """The file for its output."""
        return self.folder / f"{self.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / f"{self.name}.started"

    def start(self, ready: Callable[[], bool], environment: Mapping[str, str] | None = None) -> None:
        """Start it and return when it is ready; raises `SetUpError` with the end of its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # The log of a previous start may explain why a test fails after a restart.
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._pid_file.write_text(str(process.pid))

        def ready_or_over() -> bool:
            return process.poll() is not None or ready()

        try:
            wait_for(ready_or_over, f"The start of {self.name}", START_SECONDS)
            if process.poll() is not None:
                raise SetUpError(f"{shlex.join(self.command)} ended with status {process.returncode}.")
        except SetUpError as exc:
            raise SetUpError(f"{exc}\n{self.log_tail()}") from exc

    def stop(self) -> bool:
        """Stop it if it runs; return whether it ran. Raises `SetUpError` if it does not stop."""
        pid = self.pid()
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not self._runs(pid), f"The end of {self.name} (process {pid})", STOP_SECONDS)
        self._pid_file.unlink()
        return True

    def pid(self) -> int | None:
        """Return its process id while it runs."""
        try:
            text = self._pid_file.read_text()
        except FileNotFoundError:
            return None
        # The file is empty if its writer was killed at that moment.
        return int(text) if text.isdigit() and self._runs(int(text)) else None

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of its output."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _runs(self, pid: int) -> bool:
        try:
            # Empty for a process that has ended and whose parent, maybe this process, has not collected it yet.
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            return False
        return str(self.folder).encode() in words
