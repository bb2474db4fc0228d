"""The manifest of a model for a cluster with KServe."""

from __future__ import annotations

from typing import Any

import yaml

from farandole import __version__
from farandole.models.model import ONNX_FILE, ModelInfo

MODELS = "/mnt/models"
PORT = 8080


def inference_service(info: ModelInfo) -> str:
    """Return the YAML of an InferenceService that serves a version.

    Its pod mounts the volume claim ``farandole-models``, into which the folder of the model has to be copied.

    Source: https://kserve.github.io/website/docs/reference/crd-api
    """
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
        "metadata": {"name": info.name.model, "annotations": {"farandole/model": str(info)}},
        "spec": {"predictor": {"containers": [container], "volumes": [volume]}},
    }
    return str(yaml.safe_dump(manifest, sort_keys=False))
