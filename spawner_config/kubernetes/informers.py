"""KubeSpawner's watches of pods and events, kept alive: the hub knows of its servers what they have seen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kubespawner import KubeSpawner

if TYPE_CHECKING:
    from kubespawner.reflector import ResourceReflector


class WatchingSpawner(KubeSpawner):  # type: ignore[misc]
    """A KubeSpawner whose watches outlast an API server that is away for more than a minute."""

    async def _start_reflector(self, kind: str, reflector_class: type[ResourceReflector], **options: Any) -> Any:
        key = self._get_reflector_key(kind)
        try:
            return await super()._start_reflector(kind, reflector_class, **options)
        except BaseException:
            # Left there, it would pass for one that has seen no pods, and every server for dead.
            if _never_loaded(self.reflectors.get(key)):
                del self.reflectors[key]
            raise

    @property
    def _pod(self) -> dict[str, Any] | None:
        """What is known of the server's pod."""
        for reflector in (self.pod_reflector, self.event_reflector):
            keep_watching(reflector)
        pod: dict[str, Any] | None = self.pod_reflector.pods.get(f"{self.namespace}/{self.pod_name}")
        return pod


def keep_watching(reflector: ResourceReflector | None) -> None:
    """Begin a watch anew that has given up, as KubeSpawner's do after a minute without the API server.

    What it knows stays until it has been told again.
    """
    if reflector is None or reflector._stopping:
        return
    if reflector.watch_task is not None and reflector.watch_task.done():
        reflector.log.warning("Watching %s anew", reflector.kind)
        reflector.watch_task = asyncio.create_task(reflector._watch_and_update())


def _never_loaded(reflector: ResourceReflector | None) -> bool:
    loading = reflector and reflector.first_load_future
    return bool(loading and loading.done() and (loading.cancelled() or loading.exception()))
