"""Push the built images to a registry, tagged by version and commit, and print settings that pull them by digest.

REGISTRY=host:port python -m images.publish
"""

from __future__ import annotations

import os
import subprocess
import sys

from images.engine import StepError, is_built, run_step
from images.names import (
    CPU,
    HUB,
    NOTEBOOK,
    NOTEBOOK_CUDA,
    SERVING,
    SERVING_TORCH,
    Image,
    registry_prefix,
    revision,
    version,
)

SETTINGS = {
    HUB: "FARANDOLE_HUB_IMAGE",
    NOTEBOOK: "FARANDOLE_NOTEBOOK_IMAGE",
    SERVING: "FARANDOLE_SERVING_IMAGE",
    SERVING_TORCH: "FARANDOLE_SERVING_TORCH_IMAGE",
    NOTEBOOK_CUDA: "FARANDOLE_GPU_IMAGE",
}
"""The settings in `.env` that name the images."""


class PublishError(StepError):
    """Raised when an image cannot be published; the message says why and what to do."""


def publish(image: Image, registry: str) -> str:
    """Push ``image`` and return its name with its digest; raises `PublishError`."""
    source = local_tag(image, registry)
    for tag in (image.tag(version(), registry), image.tag(revision(), registry)):
        subprocess.run(["docker", "tag", source, tag], check=True)
        if subprocess.run(["docker", "push", "--quiet", tag], check=False, stdout=subprocess.DEVNULL).returncode:
            raise PublishError(
                f"{tag} could not be pushed; the engine's reason is above. Is the registry reachable from this engine, "
                "and are you logged in (docker login)? A registry without TLS must be in the engine's "
                "insecure-registries."
            )
    return digest(image, registry)


def local_tag(image: Image, registry: str) -> str:
    """Return the name under which the image was built on this machine; raises `PublishError`."""
    for tag in (image.tag(version()), image.tag(version(), registry)):
        if is_built(tag):
            return tag
    raise PublishError(f"There is no image {image.tag(version())} on this engine. Run `make images`.")


def digest(image: Image, registry: str) -> str:
    """Return the image's name with its digest, which identifies exactly this build."""
    form = "{{range .RepoDigests}}{{println .}}{{end}}"
    command = ["docker", "image", "inspect", "--format", form, image.tag(version(), registry)]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return next(name for name in names if name.startswith(f"{registry}{image.repository}@"))


def built_images() -> list[Image]:
    """Return all images; the image for GPUs is among them if it was built.

    ACCELERATOR=cpu excludes the image for GPUs.
    """
    gpus = os.environ.get("ACCELERATOR") != CPU and is_built(NOTEBOOK_CUDA.tag(version()))
    return [HUB, NOTEBOOK, SERVING, SERVING_TORCH, *([NOTEBOOK_CUDA] if gpus else [])]


def main() -> int:
    """Publish the images, and print the settings for the `.env` of a new machine; return the exit status."""
    registry = registry_prefix()
    if not registry:
        print("Set the registry: make publish REGISTRY=host:port", file=sys.stderr)
        return 2

    def step() -> None:
        print(f"FARANDOLE_REGISTRY={registry}\nFARANDOLE_VERSION={version()}", flush=True)
        for image in built_images():
            print(f"{SETTINGS[image]}={publish(image, registry)}", flush=True)

    return run_step(step)


if __name__ == "__main__":
    sys.exit(main())
