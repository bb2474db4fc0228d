"""The manifest of a model for a cluster with KServe."""

from __future__ import annotations

import re
from typing import Any

import yaml

from farandole import __version__
from farandole.exceptions import UsageError
from farandole.models.model import ONNX_FILE, ModelInfo

MODELS = "/mnt/models"
PORT = 8080
SERVICE_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,22}[a-z0-9])?")
"""Names of Services begin with a letter (RFC 1035), and KServe appends to the name. Names of models are as long."""


def inference_service(info: ModelInfo, name: str) -> str:
    """Return the YAML of an InferenceService with this name that serves a version.

    Its pod mounts the volume claim ``farandole-models``, into which the folder of the model has to be copied.

    Raises UsageError if Kubernetes does not accept the name.

    Source: https://kserve.github.io/website/docs/reference/crd-api
    """
    if SERVICE_NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} cannot be the name of an InferenceService: it begins with a letter, and has 1 to 24 lower-case "
            "letters, digits and inner hyphens; give another one with `--name`"
        )
    variant = "" if ONNX_FILE in info.files else "-torch"
    container: dict[str, Any] = {
        "name": "kserve-container",
        "image": f"farandole-serving:{__version__}{variant}",
        "command": ["python", "-m", "farandole.serving", "--no-login", f"{info.name.model}:{info.version}"],
        "env": [
            {"name": "FARANDOLE_MODELS", "value": MODELS},
            {"name": "JUPYTERHUB_SERVICE_URL", "value": f"http://0.0.0.0:{PORT}/"},
        ],
        "ports": [{"containerPort": PORT, "protocol": "TCP"}],
        "volumeMounts": [{"name": "models", "mountPath": MODELS, "readOnly": True}],
    }
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": "farandole-models", "readOnly": True}}
    manifest = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "annotations": {"farandole/model": str(info)}},
        "spec": {"predictor": {"containers": [container], "volumes": [volume]}},
    }
    return str(yaml.safe_dump(manifest, sort_keys=False))
