"""Runs a real NATS server, the one of Debian, as the hub runs it, and connects to it as users of a hub."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from farandole.streams import Broker

from hub.process import wait_until
from hub.services.streams.health import check
from spawner_config.local import free_port
from spawner_config.settings import ROOT
from spawner_config.streams.connection import Server
from spawner_config.streams.keys import Keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from nats.aio.client import Client

START_SECONDS = 30
SECRET = "0123456789abcdef" * 4
NAMES = ("localhost", "127.0.0.1")


class RunningNats:
    """A NATS server with TLS at a free port of the loopback interface, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.listen = f"127.0.0.1:{self.port}"
        self.server = Server(url=f"tls://{self.listen}", keys=Keys(SECRET))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.folder.with_suffix(".log")

    def start(self) -> None:
        """Start it, and wait until it listens. Its log is in the error if it does not start."""
        if shutil.which("nats-server") is None:
            pytest.fail("The tests of streams need nats-server; `make test` installs it.")
        command = [sys.executable, "-m", "hub.services.streams", str(self.folder), self.listen, *NAMES]
        environment = {**os.environ, "FARANDOLE_STREAMS_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        wait_until(self._listens, START_SECONDS)

    def stop(self) -> None:
        """End it."""
        if self.process:
            self.process.terminate()
            self.process.wait(START_SECONDS)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")[-4000:]
        try:
            check(self.port)
        except OSError:
            return False
        return True

    @asynccontextmanager
    async def connected(self, credentials: str, **options: Any) -> AsyncIterator[Client]:
        """Connect with these credentials. ``options`` are further arguments of ``nats.connect``."""
        broker = Broker(self.server.url, credentials, self.server.authority)
        client = broker.client()
        try:
            await client.connect(**{"allow_reconnect": False, "error_cb": ignore, **broker.options(), **options})
            yield client
        finally:
            await client.close()


async def ignore(_error: Exception) -> None:
    """Ignore errors of a connection that the client reports besides those that it raises."""


@contextmanager
def running_nats(folder: Path) -> Iterator[RunningNats]:
    """Run a NATS server."""
    found = RunningNats(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()
