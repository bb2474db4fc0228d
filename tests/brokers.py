"""Runs real brokers, the NATS server and the Redis of Debian, which tests can kill and start again."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from hub.process import wait_until
from spawner_config.local import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 30


@dataclass
class RunningBroker:
    """A broker at a free port of the loopback interface, whose data and log are in a folder."""

    folder: Path
    scheme: str
    process: subprocess.Popen[bytes] | None = None
    port: int = field(default_factory=free_port)
    most_bytes: int = 2**30
    """What a NATS server may store."""
    max_payload: int = 2**20
    """The largest message that a NATS server accepts, in bytes."""
    jetstream: bool = True
    more: str = ""
    """More lines of a NATS server's configuration."""

    @property
    def url(self) -> str:
        """The address of the broker."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """Return the command that runs this broker."""
        if self.scheme == "nats":
            config = self.folder / "nats.conf"
            store = f'store_dir: "{self.folder}", max_file_store: {self.most_bytes}'
            lines = [f"listen: 127.0.0.1:{self.port}", f"max_payload: {self.max_payload}", self.more]
            lines += [f"jetstream {{ {store} }}"] if self.jetstream else []
            config.write_text("\n".join(lines), encoding="utf-8")
            words = ["nats-server", "-c", str(config)]
        else:
            words = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
            words += ["--appendonly", "yes", "--save", ""]
        program = shutil.which(words[0])
        if program is None:
            pytest.fail(f"there is no {words[0]}; `make setup-all` installs it")
        return [program, *words[1:]]

    def start(self) -> None:
        """Start the broker, and wait until it accepts connections."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, cwd=self.folder)
        wait_until(self._is_ready, START_SECONDS)

    def _is_ready(self) -> bool:
        text = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        words = "Server is ready" if self.scheme == "nats" else "Ready to accept connections"
        return text.count(words) > self._earlier

    _earlier: int = 0

    def kill(self) -> None:
        """End the broker as a lost machine would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._earlier += 1


@contextmanager
def run_broker(folder: Path, scheme: str, **options: Any) -> Iterator[RunningBroker]:
    """Run a broker of one of the schemes ``nats`` and ``redis``, until the block ends."""
    broker = RunningBroker(folder=folder, scheme=scheme, **options)
    broker.start()
    try:
        yield broker
    finally:
        if broker.process is not None and broker.process.poll() is None:
            broker.kill()
