"""How many servers may be starting at once: those that only wait for a place are none of them."""

from __future__ import annotations

from abc import abstractmethod

from dockerspawner import DockerSpawner
from jupyterhub.utils import maybe_future
from traitlets import Integer

from spawner_config.refusals import refused_start


class BurstSpawner(DockerSpawner):  # type: ignore[misc]
    """A DockerSpawner that refuses a start for a moment while too many others are under way."""

    concurrent_starts = Integer(
        100,
        min=1,
        config=True,
        help="How many servers may be starting at once; further ones are refused for a moment. It stands for "
        "JupyterHub.concurrent_spawn_limit, which counts those too that only wait for a GPU or a machine: a long queue "
        "would keep everybody from starting anything. Example: c.BurstSpawner.concurrent_starts = 50",
    )

    @property
    @abstractmethod
    def only_waiting(self) -> int:
        """How many of the hub's servers that are to start only wait for a place."""

    async def run_pre_spawn_hook(self) -> None:
        """Refuse the start while too many others are under way; raises `SpawnException`."""
        self._check_burst()
        await maybe_future(super().run_pre_spawn_hook())

    def _check_burst(self) -> None:
        pending = self.user.settings["users"].count_active_users()["spawn_pending"]
        starting = pending - self.only_waiting
        # This one is among them.
        if starting > self.concurrent_starts:
            raise refused_start(
                f"{starting - 1} servers are starting. Try again in a minute.", reason="throttled", status_code=429
            )
