"""A second engine beside this machine's; the tests treat it as another machine."""

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
    """Debian's newer engine (26), unpacked and never installed, with its own network and folder.

    ``name`` has at most 12 characters. ``cable`` and ``containers`` are ranges of unused addresses; containers of
    the engine's default network are reachable from here. ``settings`` go into its daemon.json, ``programs`` is a
    folder that comes first in its path. Its `runc` is this machine's, as the newer one needs a newer C
    library.
    """

    name: str
    cable: IPv4Network
    containers: IPv4Network
    settings: Mapping[str, Any] = field(default_factory=dict)
    programs: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder with all files of the engine; `down` removes it."""
        return STATE / self.name

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.folder / "docker.sock"

    @property
    def url(self) -> str:
        """Its address, as in DOCKER_HOST."""
        return f"unix://{self.socket}"

    @property
    def address(self) -> str:
        """The address at which this machine reaches its containers' published ports."""
        return str(self._namespace.there.ip)

    def up(self) -> None:
        """Start it after removing the remains of an interrupted run; raises `SetUpError`."""
        if os.geteuid():
            raise SetUpError("A second engine for the tests needs root: run them as root.")
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
        """Stop it and remove all its files; raises `SetUpError`."""
        containerd, dockerd = self._daemons
        if dockerd.pid() and containerd.pid() and self._works("version"):
            ids = self.docker("ps", "--all", "--quiet").split()
            # Kill the containers, because the engine would give each of them ten seconds to exit.
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
        """Return the output of a docker command on this engine; raises `SetUpError`."""
        return run("docker", "--host", self.url, *arguments)

    def copy(self, *images: str) -> None:
        """Copy images from this machine's engine, unless they are there already."""
        missing = [image for image in images if not self._works("image", "inspect", image)]
        if not missing:
            return
        with subprocess.Popen(["docker", "save", *missing], stdout=subprocess.PIPE) as save:
            load = ["docker", "--host", self.url, "load"]
            done = subprocess.run(load, stdin=save.stdout, capture_output=True, text=True, check=False)
        if done.returncode or save.returncode:
            raise SetUpError(f"{', '.join(missing)} could not be copied to {self.url}: {done.stderr}")

    def logs(self) -> str:
        """Return the ends of its logs."""
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
            # A unique name, which identifies the remains of its containers' groups.
            "cgroup-parent": f"/{self.name}",
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "bip": str(bridge),
            **self.settings,
        }
        (self.folder / "daemon.json").write_text(json.dumps(settings, indent=1))


@contextmanager
def running(engine: SecondEngine) -> Iterator[SecondEngine]:
    """Run an engine; one test session at a time has one with this name."""
    with locked(engine.name):
        try:
            engine.up()
            yield engine
        finally:
            engine.down()
