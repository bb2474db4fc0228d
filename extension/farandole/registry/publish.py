"""Puts versions of models into registries, as images."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from farandole.exceptions import RegistryDeniedError, RegistryError, UsageError
from farandole.models.model import ONNX_FILE, ModelInfo
from farandole.registry.client import Registry, digest_of
from farandole.registry.image import Base, ModelImage
from farandole.registry.layer import pieces
from farandole.registry.layout import write_layout
from farandole.registry.reference import Reference, is_reference, parse_reference


@dataclass(frozen=True, kw_only=True)
class Published:
    """An image in a registry.

    Attributes:
        reference: its name, with its tag and its digest.
        sent: the bytes that were uploaded for the model.
        base_sent: the bytes that were uploaded for the serving image, which the registry did not have.
    """

    reference: Reference
    sent: int
    base_sent: int


def publish(info: ModelInfo, target: Reference, base: Reference, *, login: tuple[str, str] | None = None) -> Published:
    """Publish a version. The tag appears last, so an upload that breaks off leaves nothing that can be seen.

    Args:
        info: the version.
        target: the image. Without a tag, the version is the tag.
        base: the serving image.
        login: the user and the password for the registry of the image, or None for the login of ``docker login``.

    Raises:
        RegistryDeniedError: the registry does not let this user write there.
        RegistryError: the registry does not answer, or has another image with this tag.
        ModelDamagedError: the files cannot be read.
        UsageError: the serving image cannot compute the model, or the name of the image has a digest.
    """
    if target.digest:
        raise UsageError(f"{target} has a digest, which only an image that exists can have; leave out @{target.digest}")
    target, registry = replace(target, tag=target.tag or str(info.version)), Registry.of(target, login)
    found = None if base.host == target.host else find_base(base)
    try:
        return _publish(ModelImage.make(info, found or Base.find(base, registry)), target, registry)
    except RegistryDeniedError as exc:
        raise RegistryDeniedError(
            f"{exc} Give your name there with `--user`, use the configuration of `docker login`, or write the image to "
            "a file with `--file` for somebody who may push it."
        ) from exc


def publish_file(info: ModelInfo, path: Path, base: Reference, *, login: tuple[str, str] | None = None) -> int:
    """Write the image of a version to a new file, and return its size in bytes.

    Args:
        info: the version.
        path: the file.
        base: the serving image.
        login: the user and the password for the registry of the serving image, or None for the login of
            ``docker login``.

    Raises what `publish` and `write_layout` raise.
    """
    return write_layout(ModelImage.make(info, find_base(base, login)), path, str(info))


def find_base(reference: Reference, login: tuple[str, str] | None = None) -> Base:
    """Find a serving image that is in another registry than the image of the model, or that is for a file."""
    try:
        return Base.find(reference, Registry.of(reference, login))
    except RegistryDeniedError as exc:
        raise RegistryDeniedError(
            f"{exc} The serving image {reference} is there. Use the configuration of `docker login` (with `--file`, "
            "`--user` does as well), or name a serving image that you may read with `--base`."
        ) from exc


def serving_image(info: ModelInfo) -> Reference:
    """Return the serving image of the hub that can compute a version.

    Raises UsageError if the hub has none in a registry.
    """
    setting = "FARANDOLE_SERVING_IMAGE" if ONNX_FILE in info.files else "FARANDOLE_SERVING_TORCH_IMAGE"
    name = os.environ.get(setting, "")
    if not is_reference(name):
        said = f"is {name}, which is in no registry" if name else "is not set here"
        raise UsageError(
            f"the serving image is not known, because {setting} {said}; name one with `--base`, such as "
            "registry.example.org/farandole-serving:0.1.0, which the administrator puts there with `make publish`"
        )
    return parse_reference(name)


def _publish(image: ModelImage, target: Reference, registry: Registry) -> Published:
    named = replace(target, digest=image.manifest.digest)
    if _has_tag(registry, named):
        return Published(reference=named, sent=0, base_sent=0)
    for layer in image.base.layers:
        _copy_layer(layer, image.base, registry, target.repository)
    base_sent = registry.sent
    if not registry.has_blob(target.repository, image.layer.digest):
        registry.upload(target.repository, image.layer.digest, image.layer.size, pieces(image.layer.info))
    registry.upload(target.repository, digest_of(image.config), len(image.config), iter([image.config]))
    # Registries offer no way to create a tag only if there is none. Somebody may have created it during the upload.
    if not _has_tag(registry, named):
        registry.put_manifest(target.repository, target.tag, image.manifest)
    if not _has_tag(registry, named):
        raise RegistryError(f"{target} was removed while it was published.")
    return Published(reference=named, sent=registry.sent - base_sent, base_sent=base_sent)


def _has_tag(registry: Registry, named: Reference) -> bool:
    """Return whether the registry has an image. Raises RegistryError if another one has its tag."""
    found = registry.manifest(named.repository, named.tag)
    if found is not None and found.digest != named.digest:
        raise RegistryError(
            f"{named.host}/{named.repository}:{named.tag} is another image already ({found.digest}); nothing is "
            "changed. Publish with another tag, such as "
            f"{named.host}/{named.repository}:{named.tag}-2."
        )
    return found is not None


def _copy_layer(layer: dict[str, Any], base: Base, registry: Registry, repository: str) -> None:
    """Let a repository have a layer of the serving image, without a transfer if the registry has it already."""
    digest = layer["digest"]
    if registry.has_blob(repository, digest):
        return
    if registry is base.registry and registry.mount(repository, digest, base.reference.repository):
        return
    content = base.registry.blob(base.reference.repository, digest, layer["size"])
    registry.upload(repository, digest, layer["size"], content)
