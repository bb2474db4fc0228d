"""The image of a version of a model: the serving image, and one layer with the model.

Source: https://github.com/opencontainers/image-spec/blob/v1.1.1/spec.md
"""

from __future__ import annotations

import json
import platform
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from farandole.exceptions import RegistryError, UsageError
from farandole.models.model import ONNX_FILE, ModelInfo
from farandole.reading import SMALL_JSON_BYTES, parse_json
from farandole.registry.client import Manifest, Registry, digest_of
from farandole.registry.layer import LAYER_TYPE, MODELS, Layer
from farandole.registry.reference import DIGEST, Reference

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
OCI_TYPES = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar": LAYER_TYPE,
}
"""The types of layers in images that ``docker push`` has written, and their names in an OCI manifest."""
RUNTIME_LABEL = "farandole.runtime"
RUNTIMES = ("onnx", "torch")
MODEL_LABEL = "farandole.model"
PORT = 8080
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class Base:
    """The serving image in a registry, to which a layer is added.

    Attributes:
        registry: where it is.
        reference: its name.
        digest: the digest of its manifest.
        layers: the descriptors of its layers, as OCI defines them.
        config: its configuration.
    """

    registry: Registry
    reference: Reference
    digest: str
    layers: tuple[dict[str, Any], ...]
    config: dict[str, Any]

    @classmethod
    def find(cls, reference: Reference, registry: Registry) -> Base:
        """Read a serving image. Raises RegistryError if there is none with this name."""
        manifest = registry.manifest(reference.repository, reference.wanted)
        if manifest is None:
            raise RegistryError(
                f"the serving image {reference} is not in its registry; the administrator puts it there with "
                "`make publish`"
            )
        parsed = manifest.parsed()
        try:
            if "manifests" in parsed:
                manifest = _for_this_machine(reference, registry, parsed)
                parsed = manifest.parsed()
            config, layers = _digest(parsed["config"]), [_descriptor(one) for one in parsed["layers"]]
            read = parse_json(b"".join(registry.blob(reference.repository, config, SMALL_JSON_BYTES)), "its content")
            labels = read["config"].get("Labels") or {}
            is_serving = labels.get(RUNTIME_LABEL) in RUNTIMES and MODEL_LABEL not in labels
            diff_ids = read["rootfs"]["diff_ids"]
        except (KeyError, TypeError, AttributeError, ValueError) as exc:
            raise RegistryError(f"{reference} is not a container image: {exc!r}.") from exc
        if not is_serving or len(diff_ids) != len(layers):
            raise RegistryError(f"{reference} is not a serving image of Farandole; name one with `--base`.")
        return cls(registry=registry, reference=reference, digest=manifest.digest, layers=tuple(layers), config=read)

    @property
    def runtime(self) -> str:
        """What computes models in this image: ``onnx`` or ``torch``."""
        return str(self.config["config"]["Labels"][RUNTIME_LABEL])


@dataclass(frozen=True, kw_only=True)
class ModelImage:
    """The image of a version.

    Attributes:
        base: the serving image.
        layer: the layer with the model.
        config: the bytes of the configuration.
        manifest: the manifest, whose digest names the image.
    """

    base: Base
    layer: Layer
    config: bytes
    manifest: Manifest

    @classmethod
    def make(cls, info: ModelInfo, base: Base) -> ModelImage:
        """Make the image of a version. Raises UsageError if the serving image cannot compute it."""
        runtime = "onnx" if ONNX_FILE in info.files else "torch"
        if runtime == "torch" and base.runtime != runtime:
            raise UsageError(
                f"{base.reference} has no torch, and {info} is not exported to ONNX; save the model with `onnx=True`, "
                "or name the serving image with torch with `--base`"
            )
        layer = Layer.of(info)
        config = _canonical(_config(info, base, layer))
        layers = [*base.layers, {"mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.size}]
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": digest_of(config), "size": len(config)},
            "layers": layers,
            "annotations": {"org.opencontainers.image.base.digest": base.digest},
        }
        content = Manifest(content=_canonical(manifest), media_type=MANIFEST_TYPE)
        return cls(base=base, layer=layer, config=config, manifest=content)


def _config(info: ModelInfo, base: Base, layer: Layer) -> dict[str, Any]:
    """Return the configuration of an image, which starts the server without a hub and without a login."""
    created = datetime.fromtimestamp(info.created, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    name = f"{info.name.model}:{info.version}"
    own = dict(base.config["config"])
    environment = {"FARANDOLE_MODELS": MODELS, "JUPYTERHUB_SERVICE_URL": f"http://0.0.0.0:{PORT}/"}
    own["Env"] = [*(own.get("Env") or []), *(f"{key}={value}" for key, value in environment.items())]
    own["Cmd"] = ["python", "-m", "farandole.serving", "--no-login", name]
    own["ExposedPorts"] = {f"{PORT}/tcp": {}}
    own["Labels"] = {**own["Labels"], **labels(info, created)}
    history = {"created": created, "created_by": f"%models publish {name}"}
    return {
        **base.config,
        "created": created,
        "config": own,
        "rootfs": {"type": "layers", "diff_ids": [*base.config["rootfs"]["diff_ids"], layer.digest]},
        "history": [*(base.config.get("history") or []), history],
    }


def labels(info: ModelInfo, created: str) -> dict[str, str]:
    """Return what the labels of an image say of a version.

    Source: https://github.com/opencontainers/image-spec/blob/v1.1.1/annotations.md
    """
    return {
        "org.opencontainers.image.title": info.name.model,
        "org.opencontainers.image.version": str(info.version),
        "org.opencontainers.image.revision": info.git,
        "org.opencontainers.image.created": created,
        MODEL_LABEL: f"{info.name.model}:{info.version}",
        "farandole.run": info.run,
        "farandole.data": info.data,
        "farandole.metrics": json.dumps(info.metrics, sort_keys=True),
        "farandole.versions": json.dumps(info.versions, sort_keys=True),
    }


def _for_this_machine(reference: Reference, registry: Registry, index: dict[str, Any]) -> Manifest:
    """Return the manifest for the architecture of this machine."""
    machine = MACHINES.get(platform.machine(), platform.machine())
    for one in index["manifests"]:
        if one.get("platform", {}).get("architecture") == machine and one["platform"].get("os") == "linux":
            found = registry.manifest(reference.repository, _digest(one))
            if found is not None:
                return found
    raise RegistryError(f"{reference} has no image for {machine}; name one that has with `--base`.")


def _descriptor(one: dict[str, Any]) -> dict[str, Any]:
    digest, size = _digest(one), one["size"]
    if type(size) is not int or size < 0:
        raise ValueError(f"the size of {digest} is {size!r}")
    return {"mediaType": OCI_TYPES.get(one["mediaType"], one["mediaType"]), "digest": digest, "size": size}


def _digest(one: dict[str, Any]) -> str:
    """Return the digest of a descriptor, which becomes a part of addresses and of names of files."""
    if re.fullmatch(DIGEST, one["digest"]) is None:
        raise ValueError(f"{one['digest']!r} is not a SHA-256 digest")
    return str(one["digest"])


def _canonical(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
