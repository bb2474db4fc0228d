"""A hub on a test cluster, installed from a copy of the manifests as docs/how-to/kubernetes.md describes."""

from __future__ import annotations

import json
import re
import secrets
import shutil
from typing import TYPE_CHECKING, Any

from hub.process import wait_until
from images.names import HUB, NOTEBOOK, SERVING, registry_prefix, version
from spawner_config.origins.hosts import DEFAULT_DOMAIN
from spawner_config.settings import ROOT
from tests.clients.hosts import forward
from tests.docker.ports import HTTP, quiet_port
from tests.docker.remote_hub import ADMIN, RemoteHub
from tests.docker.stack import fill_in
from tests.full_homes import SIZE
from tests.hub import LIMITED_USER
from tests.variables import with_variables

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kubernetes.node.one_node import OneNode

NAMESPACE = "farandole"
GPU = "nvidia.com/gpu"
DATA_SET = "digits"
REGISTRY = "127.0.0.1:5000"
"""A registry in the network of the node, which pulls from it without TLS. Pods reach it at the node's address."""
STREAMS_LINES = re.compile(r"^  # (- \.\./|- name: |  env: )(?=streams)", re.MULTILINE)
"""The lines of kustomization.yaml that enable streams without their #."""
USERS_PODS = "component=singleuser-server"
PLACE_SECONDS = 20
INSTALL_SECONDS = 180
GONE_SECONDS = 120.0
SMALLER = {"cpu_request = 0.5": "cpu_request = 0.1", 'memory_request = "1G"': 'memory_request = "256M"'}
"""Replacements that reduce the profiles' resource requests, so that two users' clusters fit on two CPUs."""
GPU_PROFILE = """
[[profile]]
name = "{}"
description = "{}"
cpus = 1
memory = "1G"
gpus = 1
[profile.kubernetes]
cpu_request = 0.1
memory_request = "128M"
"""
PROFILES = f"""{GPU_PROFILE.format("one-gpu", "A GPU, of which the node has two")}
{GPU_PROFILE.format("low-gpu", "A GPU for trainings that can wait")}priority = "farandole-training-low"
{GPU_PROFILE.format("first-gpu", "A GPU for trainings that go before others")}priority = "farandole-training-high"

[[profile]]
name = "little-scratch"
description = "Little room on the disk of the node"
memory = "1G"
[profile.kubernetes]
cpu_request = 0.1
memory_request = "128M"
scratch = "64Mi"

[[profile]]
name = "huge"
description = "More memory than any node has"
memory = "500G"

[[profile]]
name = "no-image"
description = "An image that nobody has"
image = "registry.invalid/nothing:1"
memory = "512M"
"""


class Site(RemoteHub):
    """The hub in the namespace `farandole` of a cluster. ``folder`` contains the operator's files."""

    def __init__(self, node: OneNode, folder: Path) -> None:
        self.port = quiet_port(HTTP)
        super().__init__(f"http://{DEFAULT_DOMAIN}:{self.port}")
        self.node = node
        self.folder = folder / "site"
        for name in ("base", "streams"):
            shutil.copytree(ROOT / "hub" / "kubernetes" / name, folder / name)
        shutil.copytree(ROOT / "hub" / "kubernetes" / "site.example", self.folder)
        self._fill_in()

    def _fill_in(self) -> None:
        images = {image: image.tag(version(), registry_prefix()) for image in (HUB, NOTEBOOK, SERVING)}
        settings = {
            "FARANDOLE_ADMIN": ADMIN,
            "FARANDOLE_ADMIN_PASSWORD": self.passwords[ADMIN],
            "FARANDOLE_SIGNUP": "open",
            "FARANDOLE_PUBLIC_PORT": str(self.port),
            "FARANDOLE_NOTEBOOK_IMAGE": images[NOTEBOOK],
            "FARANDOLE_SERVING_IMAGE": images[SERVING],
            "FARANDOLE_MODEL_IMAGES": f"{REGISTRY}/lab/*",
            "FARANDOLE_PLACE_SECONDS": str(PLACE_SECONDS),
            "FARANDOLE_SHARED_VOLUMES": f"{DATA_SET}:/data/{DATA_SET}",
            "FARANDOLE_DATA_PUBLISHERS": "ada",
            "FARANDOLE_HOME_SIZE": f"10Gi, {LIMITED_USER}: {SIZE}i",
        }
        template = (self.folder / "settings.env.example").read_text()
        (self.folder / "settings.env").write_text(fill_in(template, settings))
        (self.folder / "proxy-token.env").write_text(f"CONFIGPROXY_AUTH_TOKEN={secrets.token_hex(32)}\n")
        profiles = (self.folder / "profiles.toml").read_text()
        for usual, smaller in SMALLER.items():
            assert usual in profiles
            profiles = profiles.replace(usual, smaller)
        (self.folder / "profiles.toml").write_text(with_variables(profiles) + PROFILES)
        self._enable_streams()
        name, tag = images[HUB].rsplit(":", 1)
        with (self.folder / "kustomization.yaml").open("a") as file:
            file.write(f"images:\n  - {{ name: farandole-hub, newName: {name}, newTag: {tag} }}\n")
        self.node.copy(*images.values())

    def _enable_streams(self) -> None:
        path = self.folder / "kustomization.yaml"
        enabled, count = STREAMS_LINES.subn(r"  \1", path.read_text())
        assert count == 3
        path.write_text(enabled)
        (self.folder / "streams-secret.env").write_text(f"FARANDOLE_STREAMS_SECRET={secrets.token_hex(32)}\n")

    def install(self) -> None:
        """Install the hub and wait until its login page answers."""
        self.node.kubectl("apply", "-k", str(self.folder))
        self.kubectl("apply", "--filename=-", typed=json.dumps(claim(DATA_SET)))
        for name in ("proxy", "streams", "hub"):
            self.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={INSTALL_SECONDS}s")
        forward(self.port, (self.kubectl("get", "service", "proxy", "--output=jsonpath={.spec.clusterIP}"), 80))
        self.wait_ready()

    def kubectl(self, *arguments: str, typed: str | None = None) -> str:
        """Return the output of a kubectl command in the hub's namespace. Raises `SetUpError` if the command fails."""
        return self.node.kubectl("--namespace", NAMESPACE, *arguments, typed=typed)

    def get(self, *what: str) -> dict[str, Any]:
        """Return the description of an object, or of a list of objects."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *what, "--output=json"))
        return found

    def pods(self, user: str) -> dict[str, dict[str, Any]]:
        """Return the pods of a user's servers by server name, including pods that are terminating.

        The name of the notebook server is the empty string.
        """
        items = self.get("pods", f"--selector={USERS_PODS}")["items"]
        notes = ((pod["metadata"]["annotations"], pod) for pod in items)
        # Use the annotations, because the label with the server's name has an added hash if the name contains hyphens.
        own = ((note, pod) for note, pod in notes if note["hub.jupyter.org/username"] == user)
        return {note.get("hub.jupyter.org/servername", ""): pod for note, pod in own}

    def workers(self, user: str) -> list[str]:
        """Return the names of the user's workers that have pods."""
        return sorted(filter(None, self.pods(user)))

    def pod_name(self, user: str, server: str = "") -> str:
        """Return the name of the pod of a user's server."""
        return str(self.pods(user)[server]["metadata"]["name"])

    def execute(self, user: str, *command: str, server: str = "") -> str:
        """Return the output of a command in the pod of a user's server. Raises `SetUpError` if the command fails."""
        return self.kubectl("exec", self.pod_name(user, server), "--", *command)

    def component(self, name: str) -> str:
        """Return the name of the pod of the hub or the proxy."""
        items = self.get("pods", f"--selector=app=farandole,component={name}")["items"]
        [pod] = [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]
        return str(pod["metadata"]["name"])

    def wait_gone(self, user: str, *servers: str) -> None:
        """Wait until the pods of these servers are gone. Without ``servers``, wait for all of the user's workers."""
        wait_until(lambda: not set(servers or self.workers(user)) & set(self.pods(user)), GONE_SECONDS)

    def reports(self, user: str) -> list[dict[str, Any]]:
        """Return the reports that rank 0 has written to disk in the user's newest run."""
        lines = self._of_newest_run(user, "metrics/rank-0.jsonl").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def run_record(self, user: str) -> dict[str, Any]:
        """Return the record of the user's newest run."""
        record: dict[str, Any] = json.loads(self._of_newest_run(user, "run.json"))
        return record

    def _of_newest_run(self, user: str, file: str) -> str:
        return self.execute(
            user, "sh", "-c", f"cat $(ls -td /home/user/farandole/runs/*/ | head -1){file} 2>/dev/null || true"
        )

    def describe(self) -> str:
        """Return the pods, the events and the last lines of all logs."""
        commands = (
            ("get", "pods", "--output=wide"),
            ("get", "events", "--sort-by=.lastTimestamp"),
            ("describe", "pods"),
            *(("logs", "--tail=60", "--prefix", f"--selector={which}") for which in ("app=farandole", USERS_PODS)),
        )
        outputs = ((command, self.node.try_kubectl("--namespace", NAMESPACE, *command)) for command in commands)
        return "\n".join(f"--- kubectl {' '.join(command)}\n{done.stdout}{done.stderr}" for command, done in outputs)


def claim(name: str) -> dict[str, Any]:
    """Return a volume claim like the one that an administrator creates for a data set."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
