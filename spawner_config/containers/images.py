"""Pulls images, and refuses to start a server if the version of its image differs from the hub's version."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import docker
import requests
from dockerspawner import DockerSpawner
from farandole import __version__
from tornado.log import app_log

from spawner_config.labels import MODEL_LABEL, SERVING_LABEL, VERSION_LABEL
from spawner_config.refusals import refused_start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DIGEST = "@sha256"
PULL_SECONDS = 3600.0
"""The time limit for a pull in seconds. A start times out much earlier, but its pull continues for later starts. The
next start after this limit begins a new pull."""


class ImagePulls:
    """The image pulls in progress. All starts that need the same image wait for the same pull.

    ``connect`` returns a new client of the engine. Each pull uses a separate client and thread, because all other calls
    of the spawners share one thread. If a waiting start is cancelled, the pull continues.
    """

    def __init__(self, connect: Callable[[], docker.APIClient], *, seconds: float = PULL_SECONDS) -> None:
        self._connect = connect
        self._seconds = seconds
        self._pulls: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def pull(self, repository: str, tag: str) -> None:
        """Wait until the image is pulled; raises the errors of the engine's client, and `requests.Timeout`."""
        if repository.endswith(DIGEST):
            # DockerSpawner splits names at the last colon, which is in the digest if the name has one.
            repository, tag = repository.removesuffix(DIGEST), f"{DIGEST[1:]}:{tag}"
        image = repository, tag
        if image not in self._pulls:
            self._pulls[image] = asyncio.create_task(self._pull(repository, tag))
            self._pulls[image].add_done_callback(partial(self._ended, image))
        await asyncio.shield(self._pulls[image])

    def _ended(self, image: tuple[str, str], pull: asyncio.Task[None]) -> None:
        del self._pulls[image]
        # Log the error here too, because all starts that waited for the pull may have been cancelled.
        if not pull.cancelled() and (exc := pull.exception()):
            app_log.warning("The image %s cannot be pulled: %s", ":".join(image), exc)

    async def _pull(self, repository: str, tag: str) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.to_thread(self._pull_in_thread, repository, tag)
        except TimeoutError as exc:
            raise requests.Timeout(f"the pull did not finish within {self._seconds / 60:.0f} minutes") from exc

    def _pull_in_thread(self, repository: str, tag: str) -> None:
        with closing(self._connect()) as client:
            client.pull(repository, tag)


class ImageSpawner(DockerSpawner):  # type: ignore[misc]
    """A DockerSpawner that checks the version of an image before it creates a container."""

    pulls: ClassVar[ImagePulls]
    """The pulls in progress, which all spawners of a hub share."""
    model_image = ""
    """The image of a model, which a user has named, or an empty string."""

    def docker(self, method: str, *arguments: Any, **options: Any) -> Awaitable[Any]:
        """Call the engine; a pull runs in a separate thread because it can take minutes and would block other calls."""
        if method == "pull":
            return self.pulls.pull(*arguments, **options)
        call: Awaitable[Any] = super().docker(method, *arguments, **options)
        return call

    async def pull_image(self, image: str) -> None:
        """Pull the image if it is missing; raises `SpawnException` if there is no image of the hub's version."""
        try:
            await super().pull_image(image)
            # Inspect the image even after a successful pull, because an engine can report a failed pull in the body of
            # an answer with status 200.
            found = await self.docker("inspect_image", image)
        except (docker.errors.DockerException, requests.RequestException) as exc:
            why = str(getattr(exc, "explanation", None) or exc)
            if self.model_image:
                raise refused_start(missing_model_image(image, why), reason="image") from exc
            raise refused_start(missing_image(image, why), reason="image") from exc
        if problem := wrong_version(image, found, __version__):
            raise refused_start(problem, reason="image")


def missing_image(image: str, why: str) -> str:
    """Return the error message for an image that is not on this host; ``why`` is the engine's reason."""
    return (
        f"The image {image} is not on this host, and the engine cannot pull it: {why.strip()}. The administrator "
        "must build it with `make images`, load a bundle, or set FARANDOLE_REGISTRY and FARANDOLE_VERSION in .env to a "
        "registry that has it. For the image of a profile, the administrator must correct `image` in profiles.toml."
    )


def missing_model_image(image: str, why: str) -> str:
    """Return the error message for an image of a model that is not on this host; ``why`` is the engine's reason."""
    return (
        f"The image {image} is not on this host, and the engine cannot pull it: {why.strip()}. Check its name and "
        "its tag; without one, the tag is `latest`. The hub does not log in. If the registry asks for it, the "
        "administrator must pull the image with `docker pull`."
    )


def wrong_version(image: str, found: dict[str, Any], version: str) -> str | None:
    """Return the error message if the image does not have the hub's version, else None.

    ``found`` is the engine's description of the image.
    """
    labels = (found.get("Config") or {}).get("Labels") or {}
    label = labels.get(SERVING_LABEL) or labels.get(VERSION_LABEL)
    if label == version:
        return None
    what = f"has version {label}" if label else f"has no version (the label {VERSION_LABEL})"
    if model := labels.get(MODEL_LABEL):
        return (
            f"The image {image} {what} of Farandole and the hub has version {version}: they must be the same. Publish "
            f"{model} again, with a serving image of version {version} and with another tag."
        )
    return (
        f"The image {image} {what} and the hub has version {version}: they must be the same. The administrator must "
        "set FARANDOLE_VERSION in .env to a version of both images and run `docker compose up -d`, or build an image "
        "with additional packages again with `make image`."
    )
