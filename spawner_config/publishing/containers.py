"""Versions in the volumes of a Docker engine, also if it belongs to a swarm."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, NotFound
from docker.types import LogConfig, Mount

from spawner_config.containers.networks import ENGINE_ERRORS, reason
from spawner_config.labels import HUB_LABEL
from spawner_config.publishing.command import HOME, PLACE, publish_command
from spawner_config.publishing.publications import Ended, PublicationError, VersionStore

if TYPE_CHECKING:
    from collections.abc import Callable

    import docker
    from farandole.datasets.versions.names import DataVersion

    from spawner_config.publishing.publications import Order

POLL_SECONDS = 1.0
FORBIDDEN = 403
MEMORY = "1g"
PROCESSES = 64


class VolumeStore(VersionStore):
    """The volumes of the engine on the hub's machine; ``connect`` makes a client of it.

    The client is made at the first call, because JupyterHub copies its configuration, and a copied client lacks parts.
    """

    def __init__(self, connect: Callable[[], docker.APIClient], *, hub: str, image: str) -> None:
        self._connect = connect
        self._hub = hub
        self._image = image
        # The client does not support concurrent calls.
        self._lock = asyncio.Lock()

    @cached_property
    def _client(self) -> docker.APIClient:
        return self._connect()

    async def copy(self, version: DataVersion, order: Order) -> Ended | None:
        """Copy a folder to the volume of a version."""
        name = f"{self._hub}-publish-{version.name}"
        try:
            if not await self._is_ours(version.volume):
                return None
            await self._remove(name)
            await self._create(name, version, order)
            try:
                return await self._run(name)
            finally:
                # The user needs the first error. The next publication removes what is left.
                with suppress(*ENGINE_ERRORS):
                    await self._remove(name)
        except ENGINE_ERRORS as exc:
            raise PublicationError(f"the engine does not run the container that copies it: {reason(exc)}") from exc

    async def _is_ours(self, volume: str) -> bool:
        """Return whether this hub has created a volume, or can create it."""
        try:
            found = await self._call(self._client.inspect_volume, volume)
        except NotFound:
            return True
        except APIError as exc:
            # The engine filter does not describe volumes of others.
            if exc.status_code == FORBIDDEN:
                return False
            raise
        return (found["Labels"] or {}).get(HUB_LABEL) == self._hub

    async def _create(self, name: str, version: DataVersion, order: Order) -> None:
        [home] = order.spawner.homes
        labels = {HUB_LABEL: self._hub}
        host: dict[str, Any] = self._client.create_host_config(
            mounts=[Mount(HOME, home, read_only=True, no_copy=True), Mount(PLACE, version.volume, labels=labels)],
            network_mode="none",
            mem_limit=MEMORY,
            memswap_limit=MEMORY,
            pids_limit=PROCESSES,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            log_config=LogConfig(type="json-file", config={"max-size": "1m"}),
        )
        command = publish_command(order.folder)
        await self._call(
            self._client.create_container,
            self._image,
            name=name,
            entrypoint=command,
            host_config=host,
            labels=labels,
        )

    async def _run(self, name: str) -> Ended:
        """Run the container until it ends, which takes as long as the folder is large."""
        await self._call(self._client.start, name)
        while (state := (await self._call(self._client.inspect_container, name))["State"])["Running"]:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        if state.get("OOMKilled"):
            return Ended(status=state["ExitCode"], outcome=f"its {MEMORY} of memory were not enough")
        said = await self._call(self._client.logs, name)
        return Ended(status=state["ExitCode"], outcome=said.decode(errors="replace"))

    async def _remove(self, name: str) -> None:
        """Remove the container if it exists. It runs if the hub was restarted, or if the server is being stopped."""
        with suppress(NotFound):
            await self._call(self._client.remove_container, name, v=False, force=True)

    async def _call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        async with self._lock:
            return await asyncio.to_thread(function, *args, **options)
