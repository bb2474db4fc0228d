"""A pod that serves HTTPS to browsers in front of the hub's proxy, in place of an Ingress controller."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from images.build import run_build
from spawner_config.origins.hosts import DEFAULT_DOMAIN
from tests.clients.hosts import forward
from tests.docker.ports import HTTPS, quiet_port
from tests.docker.stack import fill_in, make_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kubernetes.site import Site

NAME = "tls-server"
IMAGE = "farandole-test-tls:1"
RECIPE = Path(__file__).with_name("tls")
START_SECONDS = 180


@contextmanager
def serving_https(site: Site, folder: Path) -> Iterator[str]:
    """Serve the hub over HTTPS and yield its URL.

    The hub is restarted with this URL. Servers that are already running do not know it.
    """
    settings = site.folder / "settings.env"
    before, port = settings.read_text(), quiet_port(HTTPS)
    make_certificate(folder)
    run_build(["--tag", IMAGE, str(RECIPE)])
    site.node.copy(IMAGE)
    files = {name: (folder / name).read_text() for name in ("tls.crt", "tls.key")}
    files["nginx.conf"] = (RECIPE / "nginx.conf").read_text().replace("PROXY", address_of(site, "proxy"))
    site.kubectl(
        "apply", "--filename=-", typed=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(files)})
    )
    given = {"FARANDOLE_DOMAIN": DEFAULT_DOMAIN, "FARANDOLE_HTTPS": "yes", "FARANDOLE_PUBLIC_PORT": str(port)}
    try:
        site.kubectl("wait", "--for=condition=Ready", f"pod/{NAME}", f"--timeout={START_SECONDS}s")
        forward(port, (address_of(site, NAME), 443))
        change(site, fill_in(before, given))
        yield f"https://{DEFAULT_DOMAIN}:{port}"
    finally:
        change(site, before)
        site.kubectl("delete", f"pod/{NAME}", f"service/{NAME}", f"secret/{NAME}", "--ignore-not-found")


def change(site: Site, settings: str) -> None:
    """Apply new settings and wait until the hub uses them."""
    (site.folder / "settings.env").write_text(settings)
    site.node.kubectl("apply", "-k", str(site.folder))
    site.kubectl("rollout", "status", "deployment/hub", f"--timeout={START_SECONDS}s")
    site.wait_ready()


def address_of(site: Site, service: str) -> str:
    """Return the cluster IP of a Service."""
    return site.kubectl("get", "service", service, "--output=jsonpath={.spec.clusterIP}").strip()


def objects(files: dict[str, str]) -> list[dict[str, Any]]:
    """Return the manifests of the pod, its Service and the Secret with its files."""
    labels = {"app": NAME}
    volume = {"name": "files", "secret": {"secretName": NAME}}
    container = {
        "name": "nginx",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
        "volumeMounts": [{"name": "files", "mountPath": "/etc/tls-server", "readOnly": True}],
        "resources": {"requests": {"memory": "32Mi"}},
    }
    spec = {"containers": [container], "volumes": [volume], "automountServiceAccountToken": False}
    service = {"selector": labels, "ports": [{"port": 443, "targetPort": 8443}]}
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "stringData": files},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME, "labels": labels}, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": service},
    ]
