"""Restarts KubeSpawner's watches of pods and events, from which the hub learns the state of its servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kubespawner import KubeSpawner

if TYPE_CHECKING:
    from kubespawner.reflector import ResourceReflector


class WatchingSpawner(KubeSpawner):  # type: ignore[misc]
    """A KubeSpawner whose watches continue even if the API server was unavailable for more than a minute."""

    async def _start_reflector(self, kind: str, reflector_class: type[ResourceReflector], **options: Any) -> Any:
        key = self._get_reflector_key(kind)
        try:
            return await super()._start_reflector(kind, reflector_class, **options)
        except BaseException:
            # Discard a watch whose first request failed. It would report no pods, so the hub would treat every server
            # as dead.
            if _never_loaded(self.reflectors.get(key)):
                del self.reflectors[key]
            raise

    @property
    def _pod(self) -> dict[str, Any] | None:
        """The last known state of the server's pod."""
        for reflector in (self.pod_reflector, self.event_reflector):
            keep_watching(reflector)
        pod: dict[str, Any] | None = self.pod_reflector.pods.get(f"{self.namespace}/{self.pod_name}")
        return pod


def keep_watching(reflector: ResourceReflector | None) -> None:
    """Restart a watch that has stopped.

    KubeSpawner's watches give up after about a minute without the API server. The restarted watch keeps the last
    known state until the API server answers again.
    """
    if reflector is None or reflector._stopping:
        return
    if reflector.watch_task is not None and reflector.watch_task.done():
        reflector.log.warning("Restarting the watch of %s", reflector.kind)
        reflector.watch_task = asyncio.create_task(reflector._watch_and_update())


def _never_loaded(reflector: ResourceReflector | None) -> bool:
    loading = reflector and reflector.first_load_future
    return bool(loading and loading.done() and (loading.cancelled() or loading.exception()))
