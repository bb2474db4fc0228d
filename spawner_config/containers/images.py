"""Refuses to start a server from an image of another version than the hub's, and tells the user the remedy."""

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

from spawner_config.labels import VERSION_LABEL
from spawner_config.refusals import refused_start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PULL_SECONDS = 3600.0
"""After this time a pull counts as stuck, and the next start begins a new one. Starts time out much earlier."""


class ImagePulls:
    """The image pulls in progress. There is one pull for each image, and any number of starts may wait for it.

    ``connect`` returns a client of the engine. Each pull has a separate client and thread, because all other calls of
    the spawners share one thread. A pull continues if a start that waits for it is cancelled.
    """

    def __init__(self, connect: Callable[[], docker.APIClient], *, seconds: float = PULL_SECONDS) -> None:
        self._connect = connect
        self._seconds = seconds
        self._pulls: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def pull(self, repository: str, tag: str) -> None:
        """Pull an image; raises the errors of the engine's client, and `requests.Timeout`."""
        image = repository, tag
        if image not in self._pulls:
            self._pulls[image] = asyncio.create_task(self._pull(repository, tag))
            self._pulls[image].add_done_callback(partial(self._ended, image))
        await asyncio.shield(self._pulls[image])

    def _ended(self, image: tuple[str, str], pull: asyncio.Task[None]) -> None:
        del self._pulls[image]
        # Log the error here too, because there may be no waiting start left to report it.
        if not pull.cancelled() and (exc := pull.exception()):
            app_log.warning("The image %s cannot be pulled: %s", ":".join(image), exc)

    async def _pull(self, repository: str, tag: str) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.to_thread(self._pull_in_thread, repository, tag)
        except TimeoutError as exc:
            raise requests.Timeout(f"its pull has not ended within {self._seconds / 60:.0f} minutes") from exc

    def _pull_in_thread(self, repository: str, tag: str) -> None:
        with closing(self._connect()) as client:
            client.pull(repository, tag)


class ImageSpawner(DockerSpawner):  # type: ignore[misc]
    """A DockerSpawner that compares the version of an image with the hub's before it creates a container."""

    pulls: ClassVar[ImagePulls]
    """Shared by all spawners of a hub."""

    def docker(self, method: str, *arguments: Any, **options: Any) -> Awaitable[Any]:
        """Call the engine. A pull may take minutes, so it runs beside all other calls."""
        if method == "pull":
            return self.pulls.pull(*arguments, **options)
        call: Awaitable[Any] = super().docker(method, *arguments, **options)
        return call

    async def pull_image(self, image: str) -> None:
        """Pull the image if it is missing; raises `SpawnException` if there is no image of the hub's version."""
        try:
            await super().pull_image(image)
            # Check again, because an engine may report a failed pull in the middle of an answer with a success status.
            found = await self.docker("inspect_image", image)
        except (docker.errors.DockerException, requests.RequestException) as exc:
            why = str(getattr(exc, "explanation", None) or exc)
            raise refused_start(missing_image(image, why), reason="image") from exc
        if problem := wrong_version(image, found, __version__):
            raise refused_start(problem, reason="image")


def missing_image(image: str, why: str) -> str:
    """Return the message for an image that is not on the host; ``why`` is the engine's reason."""
    return (
        f"The image {image} is not on this host, and the engine cannot pull it: {why.strip()}. The administrator "
        "must build it with `make images`, load a bundle, or set FARANDOLE_REGISTRY and FARANDOLE_VERSION in .env to a "
        "registry that has it. For the image of a profile, the administrator must correct `image` in profiles.toml."
    )


def wrong_version(image: str, found: dict[str, Any], version: str) -> str | None:
    """Return the message for an image whose version is not the hub's, else None; ``found`` is its description."""
    labels = (found.get("Config") or {}).get("Labels") or {}
    label = labels.get(VERSION_LABEL)
    if label == version:
        return None
    what = f"has version {label}" if label else f"has no version (the label {VERSION_LABEL})"
    return (
        f"The image {image} {what} and the hub has version {version}: they must be the same. The administrator must "
        "set FARANDOLE_VERSION in .env to a version of both images and run `docker compose up -d`, or build an image "
        "with additional packages again with `make image`."
    )
