"""The settings of the deployment on Kubernetes, which `site.example/settings.env.example` explains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from spawner_config.deployment import ServerSettings
from spawner_config.models import Switch, Whole
from spawner_config.quotas.sizes import CLAIM_BYTES, WANTED, ClaimSizes, HomeSizes
from spawner_config.settings import SettingsError
from spawner_config.shares import items

OBJECT = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
LABEL_KEY = "^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
LABEL_VALUE = "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
TAKEN_LABEL = re.compile(r"farandole\..*|hub\.jupyter\.org/.*|(app\.kubernetes\.io/)?component")
"""Labels that FARANDOLE_POD_LABELS must not set, because the hub and network policies find users' pods by them."""
COMMON_LABELS = {
    "app": "jupyterhub",
    "heritage": "jupyterhub",
    "app.kubernetes.io/name": "jupyterhub",
    "app.kubernetes.io/managed-by": "kubespawner",
}
"""Labels that KubeSpawner sets on all pods; FARANDOLE_POD_LABELS cannot set them to other values."""
GPU_RESOURCE = "nvidia.com/gpu"
GPU_CLASS_LABEL = "nvidia.com/gpu.product"
"""The node label in which NVIDIA's GPU feature discovery stores the model of the GPUs."""
SIZE = "^[1-9][0-9]*(Mi|Gi|Ti)$"
SIZE_WANTED = "text such as '10Gi' or '512Mi'"
LABELS_WANTED = "labels separated by commas, such as 'team=vision,release=farandole'"


def _names(text: str) -> tuple[str, ...]:
    return tuple(items(text))


def _labels(text: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in items(text)]
    for key, _, value in pairs:
        if TAKEN_LABEL.fullmatch(key) or COMMON_LABELS.get(key, value) != value:
            raise SettingsError(
                f"FARANDOLE_POD_LABELS has '{key}={value}', but the hub itself sets the label {key!r} of users' pods. "
                "Use another key."
            )
    return {key: value for key, _, value in pairs}


Names = Annotated[tuple[Annotated[str, Field(pattern=OBJECT)], ...], BeforeValidator(_names)]
Labels = Annotated[
    dict[Annotated[str, Field(pattern=LABEL_KEY)], Annotated[str, Field(pattern=LABEL_VALUE)]], BeforeValidator(_labels)
]


class KubernetesSettings(ServerSettings):
    """The settings of a hub on Kubernetes.

    - ``pod_labels``: additional labels for users' pods, for example for network policies of the cluster
    - ``home_size``, ``home_class``, ``home_access``: the volume claims of users' homes; without a class, they use the
      cluster's default storage class
    - ``scratch``: how much a server may write outside its volumes, on the local disk of its node
    - ``place_seconds``: how long a pod may wait for a node with enough free resources
    - ``public_port``: the port on which browsers reach the hub; None means the default port of the protocol
    - ``notebook_priority``: the PriorityClass of notebook servers, and of endpoints whose profile sets none
    """

    # The names of pods begin with this name. Pod names are host names of at most 63 characters, of which KubeSpawner
    # needs 48.
    name: str = Field(
        "farandole",
        pattern="^[a-z]([a-z0-9-]{0,12}[a-z0-9])?$",
        description="lower-case letters, digits and hyphens, 14 at most",
    )
    pull_secrets: Names = Field((), description="names of Secrets, separated by commas")
    pod_labels: Labels = Field({}, description=LABELS_WANTED)
    home_size: ClaimSizes = Field(HomeSizes(all=CLAIM_BYTES), description=WANTED)
    home_class: str | None = None
    home_access: Literal["ReadWriteMany", "ReadWriteOnce"] = Field(
        "ReadWriteMany",
        description="ReadWriteMany or ReadWriteOnce, since a user's notebook and workers share the home",
    )
    scratch: str = Field("10Gi", pattern=SIZE, description=SIZE_WANTED)
    gpu_resource: str = Field(GPU_RESOURCE, pattern=LABEL_KEY, description=f"a resource such as {GPU_RESOURCE!r}")
    gpu_class_label: str = Field(
        GPU_CLASS_LABEL, pattern=LABEL_KEY, description=f"a label of nodes, such as {GPU_CLASS_LABEL!r}"
    )
    place_seconds: Whole = Field(120, ge=1, description="a number of seconds")
    notebook_priority: str | None = Field(None, pattern=OBJECT, description="the name of a PriorityClass")
    https: Switch = Field(False, description="yes or no")
    public_port: Whole | None = Field(None, ge=1, le=65535, description="a number from 1 to 65535")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the FARANDOLE_ variables; raises `SettingsError`."""
        found = super().from_environment(environ)
        for data in found.shares.data:
            if not re.fullmatch(OBJECT, data.volume):
                raise SettingsError(
                    f"FARANDOLE_SHARED_VOLUMES contains {data.volume!r}, which is not a valid name of a "
                    "PersistentVolumeClaim. Use lower-case letters, digits, hyphens and dots; begin and end with a "
                    "letter or digit."
                )
        return found


def service_url(environ: Mapping[str, str], service: str, key: str) -> str:
    """Return the URL of a Service in the hub's namespace, or the value of the variable ``key`` if it is set.

    The URL contains the Service's IP address, which Kubernetes puts into the environment of every pod. It therefore
    works without DNS, and requests do not have to wait for a lookup. Raises `SettingsError` if there is no such
    Service.
    """
    if given := environ.get(key):
        return given.rstrip("/")
    prefix = service.upper().replace("-", "_")
    host, port = environ.get(f"{prefix}_SERVICE_HOST"), environ.get(f"{prefix}_SERVICE_PORT")
    if not host or not port:
        raise SettingsError(
            f"There is no Service {service!r} in the hub's namespace, or it is younger than the hub's pod. Create it "
            f"(kubectl apply -k), restart the hub, or set {key} to its address, such as http://{service}:80."
        )
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def host_of(url: str) -> str:
    """Return the host of a URL, in brackets if it is an IPv6 address."""
    parts = urlsplit(url)
    return parts.netloc.removesuffix(f":{parts.port}")
