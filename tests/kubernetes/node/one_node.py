"""A real Kubernetes cluster with one node, in its own network namespace.

`python -m tests.kubernetes.node.one_node up` starts the cluster, and `down` removes it. The cluster has no DNS server,
no registry, and no plugin that enforces NetworkPolicies. Its volumes are folders on the node.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.process import local_session
from tests.docker.engines.daemon import wait_for
from tests.docker.engines.debian import SetUpError, install, run
from tests.docker.engines.lock import locked
from tests.docker.engines.namespace import Namespace
from tests.docker.engines.remains import CGROUPS, Remains
from tests.kubernetes.node import pause, programs, settings
from tests.kubernetes.node.daemons import Commands
from tests.kubernetes.node.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.docker.engines.daemon import Daemon

STATE = Path("/var/tmp")
PROGRAMS = {"iptables": "iptables", "ip": "iproute2", "conntrack": "conntrack", "openssl": "openssl"}
NODE = "node-1"
VOLUMES = 32
READY_SECONDS = 120.0
PODS_END_SECONDS = 30.0
KERNEL = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
KERNEL_KEYS = ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
"""Kernel settings that the kubelet changes for the whole machine. They are restored when the cluster is removed."""


@dataclass(frozen=True, kw_only=True)
class OneNode:
    """The cluster ``name``, which has at most 12 characters. Its three networks are unused address ranges."""

    name: str
    cable: IPv4Network
    pods: IPv4Network
    services: IPv4Network

    @property
    def folder(self) -> Path:
        """The folder with all of the cluster's files. `down` removes it."""
        return STATE / self.name

    @property
    def kubeconfig(self) -> Path:
        """The path of the administrator's kubeconfig."""
        return self.keys.folder / "admin.kubeconfig"

    @property
    def address(self) -> str:
        """The address at which this machine reaches the node."""
        return str(self._namespace.there.ip)

    @property
    def enter(self) -> tuple[str, ...]:
        """The prefix of commands that run in the node's network."""
        return self._namespace.enter

    @property
    def keys(self) -> Keys:
        """The cluster's keys and certificates."""
        return Keys(folder=self.folder / "keys")

    def up(self) -> None:
        """Start the cluster and wait until it accepts pods. Raises `SetUpError` if that fails."""
        if os.geteuid():
            raise SetUpError("The tests start a Kubernetes node, which requires root. Run them as root.")
        install(PROGRAMS)
        built = programs.servers()
        self.down()
        self._configure(built)
        self._namespace.make()
        for network in (self.pods, self.services):
            run("ip", "route", "replace", str(network), "via", str(self._namespace.there.ip))
        self._start(self._commands.control_plane(), built)
        self.kubectl("create", "-f", "-", typed=self._volumes())
        self._start(self._commands.node_daemons(), built)
        self.ctr("images", "import", str(self.folder / "pause.tar"))
        wait_for(self._is_ready, f"Starting the node (logs: {self.folder})", READY_SECONDS)

    def down(self) -> None:
        """Stop the cluster and remove all its files. Raises `SetUpError` if that fails."""
        daemons = {daemon.name: daemon for daemon in self._commands.all()}
        # First stop the daemons that recreate pods. Keep the daemons that remove pods until all pods are gone.
        for name in ("kube-controller-manager", "kube-scheduler"):
            daemons.pop(name).stop()
        if all(daemons[name].pid() for name in ("kube-apiserver", "kubelet", "containerd")):
            self._end_pods()
        for name in ("kube-proxy", "kubelet", "containerd", "kube-apiserver", "etcd"):
            daemons[name].stop()
        left = Remains(name=self.name, folder=self.folder, containerd=self._commands.socket)
        left.end_containers()
        left.unmount()
        self._namespace.remove()
        left.remove_groups()
        settings.forget_networks()
        self._restore_kernel()
        if self.folder.exists():
            shutil.rmtree(self.folder)

    @contextmanager
    def without_control_plane(self) -> Iterator[None]:
        """Stop the whole control plane during the block, as when its only machine restarts.

        Stopping only the API server is not enough. Its clients wait longer after each failed attempt, up to a minute,
        and no volume claim is bound before their next attempt.
        """
        built, daemons = programs.servers(), self._commands.control_plane()
        try:
            for daemon in reversed(daemons):
                daemon.stop()
            yield
        finally:
            self._start([daemon for daemon in daemons if daemon.pid() is None], built)

    def kubectl(self, *arguments: str, typed: str | None = None) -> str:
        """Return the output of a kubectl command. Raises `SetUpError` with its error output if the command fails."""
        done = self.try_kubectl(*arguments, typed=typed)
        if done.returncode:
            raise SetUpError(f"kubectl {' '.join(arguments)} ended with status {done.returncode}:\n{done.stderr}")
        return done.stdout

    def try_kubectl(
        self, *arguments: str, typed: str | None = None, seconds: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a kubectl command and return its result, even if the command fails."""
        command = self.command(*arguments)
        return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=seconds, check=False)

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of kubectl with the administrator's kubeconfig and these arguments."""
        return [self._program("kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]

    def patch_status(self, **status: Any) -> None:
        """Change the node's status through the API, because this version of kubectl cannot change a status.

        Raises `HTTPError` if the API server refuses the change.
        """
        answer = local_session().patch(
            f"{self._commands.url}/api/v1/nodes/{NODE}/status",
            data=json.dumps({"status": status}),
            headers={"Content-Type": "application/merge-patch+json"},
            verify=str(self.keys.authority),
            cert=(self.keys.crt("admin"), self.keys.key("admin")),
            timeout=30,
        )
        answer.raise_for_status()

    def ctr(self, *arguments: str) -> str:
        """Return the output of a command of ctr, containerd's client. Raises `SetUpError` if the command fails."""
        return run(self._program("ctr"), "--address", str(self._commands.socket), "--namespace", "k8s.io", *arguments)

    def copy(self, *images: str) -> None:
        """Copy images from this machine's Docker engine without renaming them. Raises `SetUpError` if that fails."""
        command = [self._program("ctr"), "--address", str(self._commands.socket), "--namespace", "k8s.io"]
        with subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as save:
            load = [*command, "images", "import", "-"]
            done = subprocess.run(load, stdin=save.stdout, capture_output=True, text=True, check=False)
        if done.returncode or save.returncode:
            raise SetUpError(
                f"{', '.join(images)} could not be copied: {done.stderr}\nRun `make images` if one is missing."
            )

    def logs(self, lines: int = 40) -> str:
        """Return the last lines of the daemons' logs."""
        return "\n".join(f"--- {daemon.log}\n{daemon.log_tail(lines)}" for daemon in self._commands.all())

    @property
    def _namespace(self) -> Namespace:
        return Namespace(name=self.name, cable=self.cable)

    @property
    def _commands(self) -> Commands:
        return Commands(
            folder=self.folder,
            keys=self.keys,
            enter=self._namespace.enter,
            address=str(self._namespace.there.ip),
            services=self.services,
            pods=self.pods,
            node=NODE,
        )

    def _start(self, daemons: Sequence[Daemon], built: Path) -> None:
        for daemon in daemons:
            daemon.start(self._commands.ready(daemon), self._environment(built))

    def _environment(self, built: Path) -> dict[str, str]:
        return {"PATH": os.pathsep.join(map(str, [built, *programs.packaged(), os.environ["PATH"]]))}

    @staticmethod
    def _program(name: str) -> str:
        found = shutil.which(name, path=os.pathsep.join(map(str, programs.packaged())))
        assert found, name
        return found

    def _configure(self, built: Path) -> None:
        self.folder.mkdir(mode=0o755)
        (self.folder / "network").mkdir()
        self._save_kernel()
        for root in _group_roots():
            (root / self.name).mkdir()
            _fill_cpuset(root, self.name)
        self._commands.make_keys(first_service=str(self.services[1]))
        texts = {
            "containerd.toml": settings.containerd(self.folder, self._commands.socket, programs.network_plugins()),
            "network/1.conflist": json.dumps(settings.network(self.folder, self.pods)),
            "kubelet.json": json.dumps(
                settings.kubelet(self.folder, self.keys, address=self._commands.address, groups=self.name)
            ),
            # Nothing listens at this address, so that DNS queries fail immediately.
            "resolv.conf": "nameserver 127.0.0.1\n",
        }
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        pause.write_image(self.folder / "pause.tar", settings.PAUSE_IMAGE, built / "pause")

    def _volumes(self) -> str:
        """Return the manifest of volumes for claims without a storage class.

        Each volume is a folder that all users can write to.
        """
        (self.folder / "volumes").mkdir()
        items = []
        for number in range(VOLUMES):
            place = self.folder / "volumes" / str(number)
            place.mkdir()
            place.chmod(0o777)
            spec = {
                "capacity": {"storage": "50Gi"},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "hostPath": {"path": str(place)},
            }
            items.append(
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{number}"}, "spec": spec}
            )
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    def _is_ready(self) -> bool:
        account = self.try_kubectl("get", "serviceaccount", "default")
        conditions = "{range .status.conditions[?(@.type=='Ready')]}{.status}{end}"
        node = self.try_kubectl("get", "node", NODE, "-o", f"jsonpath={conditions}")
        return account.returncode == 0 and node.stdout == "True"

    def _end_pods(self) -> None:
        """Delete all pods, and let the kubelet remove their containers, networks and mounts."""
        self.try_kubectl("delete", "pods", "--all", "--all-namespaces", "--wait=false", "--grace-period=1", seconds=30)
        try:
            wait_for(
                lambda: not self.ctr("containers", "list", "--quiet").strip(), "Removing the pods", PODS_END_SECONDS
            )
        except SetUpError as exc:
            # Continue, because `down` kills the remaining processes.
            print(exc, flush=True)

    def _save_kernel(self) -> None:
        values = {name: Path("/proc/sys", name).read_text().strip() for name in (*KERNEL, *KERNEL_KEYS)}
        (self.folder / "kernel.json").write_text(json.dumps(values))

    def _restore_kernel(self) -> None:
        path = self.folder / "kernel.json"
        values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        for name, value in values.items():
            if Path("/proc/sys", name).read_text().strip() != value:
                Path("/proc/sys", name).write_text(value)


def _group_roots() -> list[Path]:
    """Return the root folders of this machine's control groups.

    There is one for each controller with cgroup v1, and a single one with cgroup v2.
    """
    if (CGROUPS / "cgroup.procs").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if (path / "tasks").exists() and not path.is_symlink()]


def _fill_cpuset(root: Path, name: str) -> None:
    """Assign CPUs and memory to a new control group, because cgroup v1 creates groups without any."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        if (root / file).exists():
            (root / name / file).write_text((root / file).read_text())


ONLY = OneNode(
    name="farandole-ku",
    cable=IPv4Network("10.219.255.0/30"),
    pods=IPv4Network("10.219.0.0/24"),
    services=IPv4Network("10.219.1.0/24"),
)


@contextmanager
def running(node: OneNode = ONLY) -> Iterator[OneNode]:
    """Run a cluster. Only one test session at a time can run the cluster with this name."""
    with locked(node.name):
        try:
            node.up()
            yield node
        finally:
            node.down()


if __name__ == "__main__":
    commands = {"up": ONLY.up, "down": ONLY.down}
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=commands)
    try:
        commands[parser.parse_args().command]()
    except SetUpError as exc:
        sys.exit(str(exc))
