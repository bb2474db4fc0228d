"""A laptop far from the hub: a network namespace whose way to the hub has a delay, and can be cut."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from hub.process import wait_until
from spawner_config.local import free_port
from spawner_config.settings import ROOT
from tests.clients.hosts import forward
from tests.docker.engines.debian import run
from tests.docker.engines.namespace import Namespace

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

ROUND_TRIP_SECONDS = 0.05
NAMESPACE = Namespace(name="fdlaptop", cable=IPv4Network("10.213.78.0/30"))


class FarLaptop:
    """Runs Python on the laptop. The hub has the same URL there as on this machine. This needs root."""

    def __init__(self, hub: str, folder: Path) -> None:
        self.hub = hub
        own = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTERHUB_", "FARANDOLE_"))}
        self._environment = own | {
            "XDG_CONFIG_HOME": str(folder / "config"),
            "FARANDOLE_RUNS": str(folder / "runs"),
            "PYTHONUNBUFFERED": "1",
        }
        self._folder = folder

    def __enter__(self) -> Self:
        NAMESPACE.remove()
        NAMESPACE.make()
        hub, middle = int(urlsplit(self.hub).port or 80), free_port()
        forward(middle, ("127.0.0.1", hub), str(NAMESPACE.here.ip))
        delay = str(ROUND_TRIP_SECONDS / 2)
        relay = ("-m", "tests.clients.hosts", str(hub), str(NAMESPACE.here.ip), str(middle), delay)
        self._relay = subprocess.Popen([*NAMESPACE.enter, sys.executable, *relay], cwd=ROOT)
        probe = f"import socket; socket.create_connection(('127.0.0.1', {hub}))"
        wait_until(lambda: self.python("-c", probe, stderr=subprocess.DEVNULL).wait() == 0, 30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._relay.kill()
        self._relay.wait()
        NAMESPACE.remove()

    def log_in(self, token: str) -> None:
        """Run ``farandole login`` with a token."""
        done = self.python("-m", "farandole.cli", "login", self.hub, stdin=subprocess.PIPE, text=True)
        done.communicate(f"{token}\n", timeout=60)
        assert done.returncode == 0

    def python(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """Start Python with these arguments."""
        command = [*NAMESPACE.enter, sys.executable, *arguments]
        return subprocess.Popen(command, env=self._environment, cwd=self._folder, **options)

    def cut(self) -> None:
        """Cut the way to the hub. Connections stay open, but nothing arrives any more."""
        run("ip", "link", "set", f"{NAMESPACE.name}-a", "down")

    def join(self) -> None:
        """Undo `cut`."""
        run("ip", "link", "set", f"{NAMESPACE.name}-a", "up")
