"""Background processes that outlive the process that started them. They are stopped by process id."""

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
    """Wait until ``happened()`` is true. Raises `SetUpError` with ``what`` in its message after ``seconds``."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            raise SetUpError(f"{what} took more than {seconds:.0f} s.")
        time.sleep(0.1)


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A background process whose command line contains ``folder``.

    The folder identifies the process, because the operating system may reuse its process id. `stop` sends
    ``stop_signal``.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    stop_signal: signal.Signals = signal.SIGTERM

    @property
    def log(self) -> Path:
        """The file that receives the daemon's output."""
        return self.folder / f"{self.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / f"{self.name}.started"

    def start(self, ready: Callable[[], bool], environment: Mapping[str, str] | None = None) -> None:
        """Start the daemon and wait until ``ready()`` is true.

        Raises `SetUpError` with the end of the log if the daemon exits or does not become ready in time.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # Append to the log, because the output before a restart may explain why a test fails afterwards.
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
            wait_for(ready_or_over, f"Starting {self.name}", START_SECONDS)
            if process.poll() is not None:
                raise SetUpError(f"{shlex.join(self.command)} ended with status {process.returncode}.")
        except SetUpError as exc:
            raise SetUpError(f"{exc}\n{self.log_tail()}") from exc

    def stop(self) -> bool:
        """Stop the daemon and return whether it was running. Raises `SetUpError` if it does not exit."""
        pid = self.pid()
        if pid is None:
            return False
        os.kill(pid, self.stop_signal)
        wait_for(lambda: not self._runs(pid), f"Stopping {self.name} (process {pid})", STOP_SECONDS)
        self._pid_file.unlink()
        return True

    def pid(self) -> int | None:
        """Return the daemon's process id, or None if the daemon is not running."""
        try:
            text = self._pid_file.read_text()
        except FileNotFoundError:
            return None
        # The file is empty if the process that wrote it was killed after opening it.
        return int(text) if text.isdigit() and self._runs(int(text)) else None

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the daemon's output."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _runs(self, pid: int) -> bool:
        try:
            # The command line is empty if the process has ended but its parent, maybe this process, has not reaped it.
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            return False
        return str(self.folder).encode() in words
