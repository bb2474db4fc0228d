"""A second engine on this machine, which the tests treat as an engine on another machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docker.engines.daemon import Daemon
from tests.docker.engines.debian import SetUpError, install, run, unpack_newer
from tests.docker.engines.lock import locked
from tests.docker.engines.namespace import Namespace
from tests.docker.engines.remains import Remains

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STATE = Path("/var/tmp")
PROGRAMS = {"iptables": "iptables", "ip": "iproute2", "runc": "runc"}


@dataclass(frozen=True, kw_only=True)
class SecondEngine:
    """Docker 26 from Debian's newer release, unpacked but not installed, with its own network and files.

    ``name`` has at most 12 characters. ``cable`` and ``containers`` are unused address ranges. Containers in the
    engine's default network get their addresses from ``containers`` and are reachable from this machine. ``settings``
    are added to daemon.json. The folder ``programs`` comes first in the engine's PATH. The engine uses this machine's
    `runc`, because the newer one needs a newer C library.
    """

    name: str
    cable: IPv4Network
    containers: IPv4Network
    settings: Mapping[str, Any] = field(default_factory=dict)
    programs: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder with all of the engine's files. `down` removes it."""
        return STATE / self.name

    @property
    def socket(self) -> Path:
        """The socket of the engine's API."""
        return self.folder / "docker.sock"

    @property
    def url(self) -> str:
        """The engine's address in the form of DOCKER_HOST."""
        return f"unix://{self.socket}"

    @property
    def address(self) -> str:
        """The address at which this machine reaches the ports that the engine's containers publish."""
        return str(self._namespace.there.ip)

    def up(self) -> None:
        """Remove the remains of an interrupted run, then start the engine. Raises `SetUpError` if that fails."""
        if os.geteuid():
            raise SetUpError("The tests start a second engine, which requires root. Run them as root.")
        install(PROGRAMS)
        binaries = unpack_newer("docker.io", "containerd")
        self.down()
        self.folder.mkdir()
        self._configure()
        self._namespace.make()
        found_in = [self.programs, binaries / "usr/sbin", binaries / "usr/bin", os.environ["PATH"]]
        environment = {"PATH": os.pathsep.join(str(each) for each in found_in if each)}
        containerd, dockerd = self._daemons
        containerd.start(self._containerd_socket.exists, environment)
        dockerd.start(lambda: self._works("version"), environment)
        self._namespace.lead_to(self.containers)

    def down(self) -> None:
        """Stop the engine and remove all its files. Raises `SetUpError` if that fails."""
        containerd, dockerd = self._daemons
        if dockerd.pid() and containerd.pid() and self._works("version"):
            ids = self.docker("ps", "--all", "--quiet").split()
            # Kill the containers, because the engine would give each of them ten seconds to exit when it stops.
            if ids:
                self._works("rm", "--force", "--volumes", *ids)
        dockerd.stop()
        containerd.stop()
        left = Remains(name=self.name, folder=self.folder, containerd=self._containerd_socket)
        left.end_containers()
        left.unmount()
        self._namespace.remove()
        left.remove_groups()
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def docker(self, *arguments: str) -> str:
        """Return the output of a docker command on this engine. Raises `SetUpError` if the command fails."""
        return run("docker", "--host", self.url, *arguments)

    def copy(self, *images: str) -> None:
        """Copy the images that the second engine lacks from this machine's first engine.

        Raises `SetUpError` if that fails.
        """
        missing = [image for image in images if not self._works("image", "inspect", image)]
        if not missing:
            return
        with subprocess.Popen(["docker", "save", *missing], stdout=subprocess.PIPE) as save:
            load = ["docker", "--host", self.url, "load"]
            done = subprocess.run(load, stdin=save.stdout, capture_output=True, text=True, check=False)
        if done.returncode or save.returncode:
            raise SetUpError(f"{', '.join(missing)} could not be copied to {self.url}: {done.stderr}")

    def logs(self) -> str:
        """Return the last lines of the logs of containerd and dockerd."""
        return "\n".join(f"--- {daemon.log}\n{daemon.log_tail()}" for daemon in self._daemons)

    @property
    def _namespace(self) -> Namespace:
        return Namespace(name=self.name, cable=self.cable)

    @property
    def _containerd_socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def _daemons(self) -> tuple[Daemon, Daemon]:
        containerd = ("containerd", "--config", str(self.folder / "containerd.toml"))
        dockerd = (*self._namespace.enter, "dockerd", "--config-file", str(self.folder / "daemon.json"))
        return (
            Daemon(name="containerd", folder=self.folder, command=containerd),
            Daemon(name="dockerd", folder=self.folder, command=dockerd),
        )

    def _works(self, *arguments: str) -> bool:
        command = ["docker", "--host", self.url, *arguments]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _configure(self) -> None:
        (self.folder / "containerd.toml").write_text(
            "version = 2\n"
            f'root = "{self.folder}/containerd"\n'
            f'state = "{self.folder}/containerd-run"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{self._containerd_socket}"\n'
            '[debug]\nlevel = "warn"\n'
        )
        bridge = IPv4Interface(f"{self.containers[1]}/{self.containers.prefixlen}")
        settings = {
            "hosts": [self.url],
            "data-root": f"{self.folder}/data",
            "exec-root": f"{self.folder}/run",
            "pidfile": f"{self.folder}/dockerd.pid",
            "containerd": str(self._containerd_socket),
            # This name is unique, so that `Remains` can find the control groups of the engine's containers.
            "cgroup-parent": f"/{self.name}",
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "bip": str(bridge),
            **self.settings,
        }
        (self.folder / "daemon.json").write_text(json.dumps(settings, indent=1))


@contextmanager
def running(engine: SecondEngine) -> Iterator[SecondEngine]:
    """Run an engine. Only one test session at a time can run an engine with this name."""
    with locked(engine.name):
        try:
            engine.up()
            yield engine
        finally:
            engine.down()
