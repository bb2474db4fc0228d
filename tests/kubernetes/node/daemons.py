"""The daemons of a one-node cluster, with their command lines, certificates and readiness checks."""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from hub.process import local_session
from tests.docker.engines.daemon import Daemon
from tests.kubernetes.node.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable

API_PORT = 6443
ETCD = "http://127.0.0.1:2379"
ETCD_PEERS = "http://127.0.0.1:2380"
CERTIFICATES = {
    "kubelet-client": "/O=system:masters/CN=kube-apiserver-kubelet-client",
    "admin": "/O=system:masters/CN=admin",
    "controllers": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
}


@dataclass(frozen=True, kw_only=True)
class Commands:
    """The commands of all daemons, with the prefix ``enter``, which runs them in the node's network namespace.

    ``address`` is the node's address in this namespace, and ``folder`` contains all files of the daemons.
    """

    folder: Path
    keys: Keys
    enter: tuple[str, ...]
    address: str
    services: IPv4Network
    pods: IPv4Network
    node: str

    @property
    def socket(self) -> Path:
        """The path of containerd's socket."""
        return self.folder / "containerd.sock"

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return f"https://{self.address}:{API_PORT}"

    def make_keys(self, first_service: str) -> None:
        """Create all certificates and kubeconfigs.

        ``first_service`` is the address at which pods reach the API server.
        """
        self.keys.make_authority()
        for name, subject in CERTIFICATES.items():
            self.keys.make(name, subject)
        names = ("DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc")
        self.keys.make("api", "/CN=kube-apiserver", (f"IP:{self.address}", f"IP:{first_service}", *names))
        who = f"/O=system:nodes/CN=system:node:{self.node}"
        self.keys.make("node", who, (f"IP:{self.address}", f"DNS:{self.node}"))
        for name in ("admin", "controllers", "scheduler", "proxy", "node"):
            self.keys.kubeconfig(name, self.url)

    def all(self) -> list[Daemon]:
        """Return all daemons in the order in which they have to start."""
        return [*self.control_plane(), *self.node_daemons()]

    def control_plane(self) -> list[Daemon]:
        """Return the daemons of the control plane."""
        return [
            self._daemon("etcd", *self._etcd()),
            # The API server keeps its data in etcd, so it can be killed. On SIGTERM, it would wait a minute for the
            # clients that watch objects.
            replace(self._daemon("kube-apiserver", *self._api_server()), stop_signal=signal.SIGKILL),
            self._daemon("kube-controller-manager", *self._controllers()),
            self._daemon("kube-scheduler", *self._own_access("scheduler")),
        ]

    def node_daemons(self) -> list[Daemon]:
        """Return the daemons that run on each node."""
        return [
            self._daemon("containerd", "--config", str(self.folder / "containerd.toml")),
            self._daemon("kubelet", *self._kubelet()),
            self._daemon("kube-proxy", *self._proxy()),
        ]

    def ready(self, daemon: Daemon) -> Callable[[], bool]:
        """Return a function that checks whether other daemons can rely on ``daemon``."""
        checks: dict[str, Callable[[], bool]] = {
            "kube-apiserver": self._api_answers,
            "containerd": lambda: _listens(self.socket),
        }
        # There are no checks for the other daemons, because they retry until their peers answer.
        return checks.get(daemon.name, lambda: True)

    def _api_answers(self) -> bool:
        try:
            return local_session().get(f"{self.url}/readyz", verify=str(self.keys.authority), timeout=5).ok
        except requests.RequestException:
            return False

    def _daemon(self, name: str, *arguments: str) -> Daemon:
        return Daemon(name=name, folder=self.folder, command=(*self.enter, name, *arguments))

    def _etcd(self) -> list[str]:
        return [
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            f"--listen-peer-urls={ETCD_PEERS}",
            f"--initial-advertise-peer-urls={ETCD_PEERS}",
            f"--initial-cluster=default={ETCD_PEERS}",
            # Do not sync to disk, because the data is discarded anyway if the machine stops.
            "--unsafe-no-fsync",
        ]

    def _api_server(self) -> list[str]:
        keys = self.keys
        return [
            f"--etcd-servers={ETCD}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={keys.crt('api')}",
            f"--tls-private-key-file={keys.key('api')}",
            f"--client-ca-file={keys.authority}",
            # There is no aggregation layer, but clients still look for its certificate.
            f"--requestheader-client-ca-file={keys.authority}",
            "--requestheader-allowed-names=nobody",
            f"--kubelet-certificate-authority={keys.authority}",
            f"--kubelet-client-certificate={keys.crt('kubelet-client')}",
            f"--kubelet-client-key={keys.key('kubelet-client')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={self.services}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys.folder}/accounts.pub",
            f"--service-account-signing-key-file={keys.key('accounts')}",
        ]

    def _controllers(self) -> list[str]:
        return [
            *self._own_access("controllers"),
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.keys.key('accounts')}",
            f"--root-ca-file={self.keys.authority}",
        ]

    def _own_access(self, name: str) -> list[str]:
        config = f"{self.keys.folder}/{name}.kubeconfig"
        return [
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        ]

    def _kubelet(self) -> list[str]:
        return [
            f"--config={self.folder}/kubelet.json",
            f"--kubeconfig={self.keys.folder}/node.kubeconfig",
            f"--root-dir={self.folder}/kubelet",
            f"--cert-dir={self.folder}/kubelet-keys",
            f"--volume-plugin-dir={self.folder}/volume-plugins",
            f"--hostname-override={self.node}",
            f"--node-ip={self.address}",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{self.socket}",
        ]

    def _proxy(self) -> list[str]:
        unchanged = ("max-per-core", "min", "tcp-timeout-established", "tcp-timeout-close-wait")
        return [
            f"--kubeconfig={self.keys.folder}/proxy.kubeconfig",
            "--proxy-mode=iptables",
            f"--hostname-override={self.node}",
            f"--cluster-cidr={self.pods}",
            "--bind-address=127.0.0.1",
            # The value 0 keeps the machine's limits on tracked connections, which a network namespace may not change.
            *(f"--conntrack-{name}=0" for name in unchanged),
        ]


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
