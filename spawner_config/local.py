"""The deployment without containers: servers are local processes, and all users share one password.

Each user has a separate home folder, but all servers run as the operating-system user who started the hub. Users of
this deployment must trust each other, because the hub separates their servers and tokens, but the operating system does
not.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from jupyterhub.slugs import safe_slug
from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets import Unicode, default

from images.notebook.start import copy_notebooks
from spawner_config.access.guards import GuardedAuthenticator
from spawner_config.local_data import LocalData
from spawner_config.operators.configure import configure_operators
from spawner_config.origins.compose import is_loopback
from spawner_config.origins.configure import configure_origins
from spawner_config.profiles.options import OptionsHook
from spawner_config.quotas.logs import bound_log
from spawner_config.refusals import refused_start
from spawner_config.settings import ROOT, Settings, ensure_password
from spawner_config.snapshots.configure import configure_snapshots
from spawner_config.streams.local import configure_local_streams

if TYPE_CHECKING:
    from spawner_config.profiles.profiles import ProfileSet

BIN = Path(sys.executable).parent
SERVING_PYTHON = ROOT / ".venv-serving" / "bin" / "python"
POLL_SECONDS = 0.05
FREE_PORTS = range(20000, 30000)
"""Ports that Linux gives to no outgoing connection, and Kubernetes to no service."""


class LoopbackPasswordAuthenticator(GuardedAuthenticator, SharedPasswordAuthenticator):  # type: ignore[misc]
    """Accepts any user name with the shared password, on a hub that only this machine can reach."""

    def check_allow_config(self) -> None:
        """End the hub if other machines could reach it."""
        super().check_allow_config()
        host = urlparse(self.parent.bind_url).hostname or ""
        if not is_loopback(host):
            raise SystemExit(
                f"The hub would listen on {host or 'every address'}, where other machines can reach it, with one "
                "password for all users. Listen on 127.0.0.1 (and tunnel to it: ssh -L 8000:127.0.0.1:8000 HOST), or "
                "configure an authenticator with separate passwords."
            )


class LocalSpawner(SimpleLocalProcessSpawner):  # type: ignore[misc]
    """Runs each server as a local process, with a home folder for each user and a log file for each server."""

    state_folder = Unicode(help="The hub's state folder, for example /srv/farandole.", config=True)

    @default("home_dir")
    def _default_home_dir(self) -> str:
        # Use a slug, because a user name such as `../` must not select a folder outside of `homes`.
        return str(Path(self.state_folder) / "homes" / safe_slug(self.user.name))

    async def start(self) -> tuple[str, int]:
        """Start the server, and return its address after it accepts connections.

        The start of a notebook server first copies the example notebooks into the user's home.
        """
        home = Path(self.home_dir)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.name:
            copy_notebooks(ROOT / "notebooks", home)
        self.server_log().unlink(missing_ok=True)
        # The file is opened for appending, because `poll` cuts it.
        with self.server_log().open("ab") as log:
            self.popen_kwargs = {"stdin": DEVNULL, "stdout": log, "stderr": log}
            address: tuple[str, int] = await super().start()
        await self._listening(*address)
        if (status := await self.poll()) is not None:
            raise refused_start(
                f"The server ended while it started (exit code {status}). {self.server_log()} has its output.",
                reason="start",
                status_code=500,
            )
        return address

    async def poll(self) -> int | None:
        """Return None while the server runs, or its exit code. A log that has grown too long is cut."""
        with suppress(OSError):
            bound_log(self.server_log())
        status: int | None = await super().poll()
        return status

    async def _listening(self, host: str, port: int) -> None:
        """Wait until the server accepts connections or has ended.

        JupyterHub itself checks this at intervals that grow to 5 s. Of two workers that start at the same time, the
        second one would then seem to need twice as long as the first.
        """
        while await self.poll() is None:
            try:
                _, writer = await asyncio.open_connection(host or "127.0.0.1", port)
            except OSError:
                await asyncio.sleep(POLL_SECONDS)
                continue
            writer.close()
            await writer.wait_closed()
            return

    def server_log(self) -> Path:
        """Return the path of the server's log file, after creating its folder."""
        folder = Path(self.state_folder) / "logs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / f"{safe_slug(self.user.name)}--{self.name or 'notebook'}.log"


def free_port() -> int:
    """Return a port on the loopback interface that is currently free and that no outgoing connection will take."""
    while True:
        port = random.choice(FREE_PORTS)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def kept_port(path: Path) -> int:
    """Return the port that the file contains if it is free; otherwise, store a free port in the file and return it.

    With a fixed port, servers that outlive a killed hub can reach the next hub at the same address.
    """
    if path.exists():
        port = int(path.read_text(encoding="ascii"))
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    port = free_port()
    path.write_text(str(port), encoding="ascii")
    return port


def configure(c: Any, settings: Settings, profile_set: ProfileSet) -> None:
    """Configure a hub on this machine, with free internal ports so that several hubs can run at the same time."""
    c.JupyterHub.bind_url = f"http://127.0.0.1:{settings.port}"
    c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{kept_port(settings.state / 'hub.port')}"
    c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{free_port()}"
    c.ConfigurableHTTPProxy.command = proxy_command()
    # Servers are child processes of the hub, so they must end with it.
    c.JupyterHub.cleanup_servers = True
    c.ConfigurableHTTPProxy.pid_file = str(settings.state / "proxy.pid")

    c.JupyterHub.authenticator_class = LoopbackPasswordAuthenticator
    c.SharedPasswordAuthenticator.user_password = ensure_password(settings)
    c.Authenticator.allow_all = True
    configure_origins(c, settings, https=False, port=settings.port)

    at = f"http://127.0.0.1:{free_port()}"
    configure_operators(c, settings, profile_set, url=at, bind="127.0.0.1", local=True)
    configure_local_streams(c, settings, kept_port)
    configure_snapshots(c, settings, url=f"http://127.0.0.1:{free_port()}", bind="127.0.0.1")

    data = LocalData.from_environment(os.environ, settings.state / "datasets")
    c.JupyterHub.spawner_class = LocalSpawner
    c.LocalSpawner.state_folder = str(settings.state)
    c.Spawner.poll_interval = 2
    c.Spawner.apply_user_options = OptionsHook(
        profile_set,
        python=sys.executable,
        environment={
            "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)]),
            # Drivers need the proxy's address, but JupyterHub gives its servers only the address of its REST API.
            "FARANDOLE_HUB_URL": f"http://127.0.0.1:{settings.port}",
        },
        args=["--allow-root"] if os.geteuid() == 0 else [],
        serving_python=str(SERVING_PYTHON),
        finish=data.set_variables,
    )


def proxy_command() -> list[str]:
    """Return the command of the proxy that `make setup` installed.

    The command runs node directly, without a wrapper, so that the proxy itself receives signals.
    """
    script = ROOT / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
    node = shutil.which("node", path=os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)]))
    if node is None or not script.exists():
        raise SystemExit("The hub's proxy is not installed. Run `make setup` in the checkout.")
    return [node, str(script)]
