"""Limits how many servers start at the same time, without counting servers that wait for a GPU or a machine."""

from __future__ import annotations

from abc import abstractmethod

from dockerspawner import DockerSpawner
from jupyterhub.utils import maybe_future
from traitlets import Integer

from spawner_config.refusals import refused_start


class BurstSpawner(DockerSpawner):  # type: ignore[misc]
    """A DockerSpawner that refuses a start while too many other starts are in progress."""

    concurrent_starts = Integer(
        100,
        min=1,
        config=True,
        help="How many servers may be starting at the same time; further starts are refused. It replaces "
        "JupyterHub.concurrent_spawn_limit, which also counts servers that only wait for a GPU or a machine: a long "
        "queue would block all other starts. Example: c.BurstSpawner.concurrent_starts = 50",
    )

    @property
    @abstractmethod
    def only_waiting(self) -> int:
        """The number of starting servers of the hub that are only waiting for a GPU or a machine."""

    async def run_pre_spawn_hook(self) -> None:
        """Raise `SpawnException` if too many other starts are in progress."""
        self._check_burst()
        await maybe_future(super().run_pre_spawn_hook())

    def _check_burst(self) -> None:
        pending = self.user.settings["users"].count_active_users()["spawn_pending"]
        starting = pending - self.only_waiting
        # The number includes this server.
        if starting > self.concurrent_starts:
            raise refused_start(
                f"{starting - 1} servers are starting. Try again in a minute.", reason="throttled", status_code=429
            )
