"""Servers start from an image that is there and fits the hub, or not at all, and the user is told which and why."""

from __future__ import annotations

from typing import Any

import docker
import requests
from dockerspawner import DockerSpawner
from farandole import __version__

from spawner_config.refusals import refused_start

VERSION_LABEL = "org.opencontainers.image.version"


class ImageSpawner(DockerSpawner):  # type: ignore[misc]
    """A DockerSpawner that compares an image's version with the hub's before it makes a container."""

    async def pull_image(self, image: str) -> None:
        """Pull the image where it is missing; raises `SpawnException` where none of the hub's version is to be had."""
        try:
            await super().pull_image(image)
            # Once more: an engine may report a pull that failed in the middle of an answer that began well.
            found = await self.docker("inspect_image", image)
        except (docker.errors.APIError, requests.RequestException) as exc:
            why = str(getattr(exc, "explanation", None) or exc)
            raise refused_start(missing_image(image, why), reason="image") from exc
        if problem := wrong_version(image, found, __version__):
            raise refused_start(problem, reason="image")


def missing_image(image: str, why: str) -> str:
    """Return what to say of an image that is not on the host; ``why`` is the engine's own reason."""
    return (
        f"The image {image} is not on this host, and the engine cannot pull it: {why.strip()}. The administrator "
        "builds it with `make images`, loads a bundle, or sets FARANDOLE_REGISTRY and FARANDOLE_VERSION in .env to a "
        "registry that has it; for a profile's own image, `image` in profiles.toml."
    )


def wrong_version(image: str, found: dict[str, Any], version: str) -> str | None:
    """Return what is wrong with an image's version, None where it is the hub's; ``found`` is what the engine tells."""
    labels = (found.get("Config") or {}).get("Labels") or {}
    label = labels.get(VERSION_LABEL)
    if label == version:
        return None
    what = f"is of version {label}" if label else f"has no version (the label {VERSION_LABEL})"
    return (
        f"The image {image} {what} and the hub is of version {version}: they must be the same. The administrator sets "
        "FARANDOLE_VERSION in .env to one that both images have and runs `docker compose up -d`; an image with more "
        "packages is made anew with `make image`."
    )
