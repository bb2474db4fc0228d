"""The configuration files of a node's containerd, kubelet and network plugin."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spawner_config.containers.spawner import PROCESSES

if TYPE_CHECKING:
    from tests.kubernetes.node.keys import Keys

PAUSE_IMAGE = "farandole.test/pause:1"
NETWORK = "farandole-kubernetes"
RESULTS = Path("/var/lib/cni/results")
"""The folder in which the network plugins record the pods of all clusters. The records of killed pods remain there."""


def containerd(folder: Path, socket: Path, plugins: Path) -> str:
    """Return containerd's configuration. All its files, including the pods' network namespaces, are in ``folder``."""
    return f"""version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-run"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  netns_mounts_under_state_dir = true
  # The default OOM score of pods is lower than that of this process, and not every root may lower it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/network"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd-opt"
"""


def network(folder: Path, pods: IPv4Network) -> dict[str, Any]:
    """Return the configuration of the pods' network.

    Each pod has its own link to the node, so that all packets pass through the firewall rules of Services.
    """
    addresses = {
        "type": "host-local",
        "dataDir": f"{folder}/addresses",
        "ranges": [[{"subnet": str(pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [{"type": "ptp", "ipMasq": True, "ipam": addresses}]
    return {"cniVersion": "0.4.0", "name": NETWORK, "plugins": plugins}


def forget_networks(results: Path = RESULTS) -> None:
    """Remove the records of pods in the tests' network."""
    for result in results.glob(f"{NETWORK}-*-eth0"):
        pod = result.name.removeprefix(f"{NETWORK}-").removesuffix("-eth0")
        (results / f"cni-loopback-{pod}-lo").unlink(missing_ok=True)
        result.unlink()


def kubelet(folder: Path, keys: Keys, *, address: str, groups: str) -> dict[str, Any]:
    """Return the kubelet's configuration. ``groups`` is the control group that contains all pods."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzBindAddress": "127.0.0.1",
        "tlsCertFile": keys.crt("node"),
        "tlsPrivateKeyFile": keys.key("node"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{groups}",
        "failSwapOn": False,
        # The value from docs/how-to/kubernetes.md, since no field of a pod limits its processes.
        "podPidsLimit": PROCESSES,
        # Report often, because the test session has to wait this long for the first report.
        "nodeStatusUpdateFrequency": "2s",
        "resolvConf": f"{folder}/resolv.conf",
        # Keep unused images, because they were imported and cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }
