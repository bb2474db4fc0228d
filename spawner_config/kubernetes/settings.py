"""What the environment says of the deployment on Kubernetes; `site.example/settings.env.example` has it in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spawner_config.profiles.profiles import MEMORY as MEMORY_TEXT
from spawner_config.settings import SettingsError, needed
from spawner_config.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = re.compile(r"[a-z]([a-z0-9-]{0,12}[a-z0-9])?")
"""It begins the names of pods, which are host names: KubeSpawner needs 48 of their 63 characters."""
OBJECT = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
QUANTITY = re.compile(r"[1-9][0-9]*(Mi|Gi|Ti)")
LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
TAKEN_LABEL = re.compile(r"farandole\..*|hub\.jupyter\.org/.*|(app\.kubernetes\.io/)?component")
"""By these the hub finds its pods, and policies the users'."""
COMMON_LABELS = {
    "app": "jupyterhub",
    "heritage": "jupyterhub",
    "app.kubernetes.io/name": "jupyterhub",
    "app.kubernetes.io/managed-by": "kubespawner",
}
"""KubeSpawner gives them to all pods, and lets no other value stand."""
ACCESS_MODES = ("ReadWriteMany", "ReadWriteOnce")
MEMORY = "4G"
HOME_SIZE = "10Gi"
GPU_RESOURCE = "nvidia.com/gpu"
GPU_CLASS_LABEL = "nvidia.com/gpu.product"
"""NVIDIA's GPU feature discovery gives it to nodes."""
PLACE_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class HomeSettings:
    """The volume claims of users' homes: how large, of which storage class (None: the cluster's), for which nodes."""

    size: str
    storage_class: str | None
    access: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> HomeSettings:
        """Read the FARANDOLE_HOME_ variables; raises `SettingsError`."""
        access = environ.get("FARANDOLE_HOME_ACCESS") or ACCESS_MODES[0]
        if access not in ACCESS_MODES:
            raise SettingsError(
                f"FARANDOLE_HOME_ACCESS is {access!r}. It must be {' or '.join(ACCESS_MODES)}: a user's notebook "
                "and workers share the home."
            )
        return cls(
            size=_fitting(environ, "FARANDOLE_HOME_SIZE", HOME_SIZE, QUANTITY, "text as '10Gi' or '512Mi'"),
            storage_class=environ.get("FARANDOLE_HOME_CLASS") or None,
            access=access,
        )


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings:
    """The settings of one hub.

    ``memory`` is the limit of servers whose profile names none; ``place_seconds`` is how long a pod may wait for a node
    that has room for it. ``pod_labels`` are more labels of users' pods, for policies that are not the hub's;
    ``notebook_priority`` is the PriorityClass of notebook servers, as a profile's is that of its workers.
    """

    name: str
    notebook_image: str
    gpu_image: str
    pull_secrets: tuple[str, ...]
    pod_labels: dict[str, str]
    memory: str
    home: HomeSettings
    gpu_resource: str
    gpu_class_label: str
    place_seconds: int
    notebook_priority: str | None
    https: bool
    shares: Shares

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> KubernetesSettings:
        """Read the FARANDOLE_ variables; raises `SettingsError`."""
        notebook_image = needed(environ, "FARANDOLE_NOTEBOOK_IMAGE", "the name of the notebook image")
        letters = "small letters, digits and hyphens, 14 at most"
        name = _fitting(environ, "FARANDOLE_NAME", "farandole", NAME, letters)
        return cls(
            name=name,
            notebook_image=notebook_image,
            gpu_image=environ.get("FARANDOLE_GPU_IMAGE") or notebook_image,
            pull_secrets=_pull_secrets(environ.get("FARANDOLE_PULL_SECRETS") or ""),
            pod_labels=_labels(environ.get("FARANDOLE_POD_LABELS") or ""),
            memory=_fitting(environ, "FARANDOLE_MEMORY", MEMORY, MEMORY_TEXT, "text as '4G' or '512M'"),
            home=HomeSettings.from_environment(environ),
            gpu_resource=_fitting(environ, "FARANDOLE_GPU_RESOURCE", GPU_RESOURCE, LABEL_KEY, f"as {GPU_RESOURCE!r}"),
            gpu_class_label=_fitting(
                environ,
                "FARANDOLE_GPU_CLASS_LABEL",
                GPU_CLASS_LABEL,
                LABEL_KEY,
                f"a label of nodes, as {GPU_CLASS_LABEL!r}",
            ),
            place_seconds=_seconds(environ, "FARANDOLE_PLACE_SECONDS", PLACE_SECONDS),
            notebook_priority=_class(environ, "FARANDOLE_NOTEBOOK_PRIORITY"),
            https=_switch(environ, "FARANDOLE_HTTPS"),
            shares=_shares(environ, name),
        )


def service_url(environ: Mapping[str, str], service: str, key: str) -> str:
    """Return the address of a Service of the hub's namespace, that of ``key`` where it is set; raises `SettingsError`.

    The fixed address, which Kubernetes puts into the environment of every pod: it serves in clusters without a name
    server too, and no request waits for one.
    """
    if given := environ.get(key):
        return given.rstrip("/")
    prefix = service.upper().replace("-", "_")
    host, port = environ.get(f"{prefix}_SERVICE_HOST"), environ.get(f"{prefix}_SERVICE_PORT")
    if not host or not port:
        raise SettingsError(
            f"There is no Service {service!r} in the hub's namespace, or it is younger than the hub's pod. Make it "
            f"(kubectl apply -k), restart the hub, or set {key} to its address, as http://{service}:80."
        )
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _pull_secrets(text: str) -> tuple[str, ...]:
    names = tuple(item.strip() for item in text.split(",") if item.strip())
    for name in names:
        if not OBJECT.fullmatch(name):
            raise SettingsError(
                f"FARANDOLE_PULL_SECRETS has {name!r}. It must be names of Secrets with commas between."
            )
    return names


def _labels(text: str) -> dict[str, str]:
    pairs = [item.strip().partition("=") for item in text.split(",") if item.strip()]
    for key, equals, value in pairs:
        if not equals or not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            raise SettingsError(
                f"FARANDOLE_POD_LABELS has {key + equals + value!r}. It must be labels with commas between, as "
                "'team=vision,release=farandole'."
            )
        if TAKEN_LABEL.fullmatch(key) or COMMON_LABELS.get(key, value) != value:
            raise SettingsError(
                f"FARANDOLE_POD_LABELS has {key + equals + value!r}, and {key!r} of a user's pod is set by the hub. "
                "Take another key."
            )
    return {key: value for key, _, value in pairs}


def _shares(environ: Mapping[str, str], name: str) -> Shares:
    shares = Shares.from_environment(environ, name)
    for data in shares.data:
        if not OBJECT.fullmatch(data.volume):
            raise SettingsError(
                f"FARANDOLE_SHARED_VOLUMES has {data.volume!r}. It must be the name of a PersistentVolumeClaim: small "
                "letters, digits, hyphens and points."
            )
    return shares


def _class(environ: Mapping[str, str], key: str) -> str | None:
    text = environ.get(key) or None
    if text and not OBJECT.fullmatch(text):
        raise SettingsError(f"{key} is {text!r}. It must be the name of a PriorityClass.")
    return text


def _seconds(environ: Mapping[str, str], key: str, default: int) -> int:
    text = environ.get(key) or str(default)
    if not text.isdigit() or int(text) < 1:
        raise SettingsError(f"{key} is {text!r}. It must be a number of seconds.")
    return int(text)


def _switch(environ: Mapping[str, str], key: str) -> bool:
    text = environ.get(key) or "no"
    if text not in {"yes", "no"}:
        raise SettingsError(f"{key} is {text!r}. It must be yes or no.")
    return text == "yes"


def _fitting(environ: Mapping[str, str], key: str, default: str, pattern: re.Pattern[str], wanted: str) -> str:
    text = environ.get(key) or default
    if not pattern.fullmatch(text):
        raise SettingsError(f"{key} is {text!r}. It must be {wanted}.")
    return text
