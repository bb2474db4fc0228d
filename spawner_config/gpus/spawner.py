"""Servers with GPUs of their own: what `GpuPool` gives out is handed to the engine, and freed when a server is gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import docker
import requests
from jupyterhub import orm
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.spawner import SpawnException
from jupyterhub.utils import maybe_future
from tornado.web import HTTPError
from traitlets import Bool, Enum, Integer, Unicode

from spawner_config.gpus.model import GpuRequest, Key
from spawner_config.gpus.pool import GpuPool, NoGpuError
from spawner_config.gpus.requests import REFUSALS, REQUEST_FORMS, device_requests, gpu_environment, offered_form
from spawner_config.lifecycle.spawn_throttle import BurstSpawner
from spawner_config.refusals import refused_start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from spawner_config.profiles.profiles import ProfileSet

GONE_SECONDS = 30.0
RETRY_SECONDS = 5.0


class GpuSpawner(BurstSpawner):
    """A DockerSpawner whose GPUs are taken before a server starts, and count as free once its container is gone.

    The GPUs of a server are kept in its state, so that the hub knows them again after a restart. Containers must be
    removed when they stop (``remove = True``): an engine that starts an old container again gives it its old GPUs.
    """

    gpu_pool: ClassVar[GpuPool]
    """Shared by all spawners of a hub; a class attribute, since traitlets would copy it for each of them."""
    extra_host_config: dict[str, Any]

    gpus = Integer(0, min=0, help="How many GPUs the server has; set by its profile.")
    gpu_class = Unicode(None, allow_none=True, help="Of which class; None for any. Set by the profile.")
    wait_for_gpus = Bool(False, help="Queue while no GPU is free; the user's choice.")
    gpu_request_form = Enum(
        REQUEST_FORMS,
        "auto",
        config=True,
        help="How the engine is asked for GPUs: 'nvidia' for NVIDIA's runtime or hook, 'cdi' for the Container Device "
        "Interface, 'auto' for what the engine says it has. Example: c.GpuSpawner.gpu_request_form = 'cdi'",
    )

    @property
    def key(self) -> Key:
        """The server as the pool knows it."""
        return self.user.name, self.name

    @property
    def only_waiting(self) -> int:
        """How many servers wait for a GPU."""
        return len(self.gpu_pool.waiting())

    _nothing_started = False

    def clear_state(self) -> None:
        """Forget the last start; the hub calls this before each start and after each end."""
        super().clear_state()
        self._nothing_started = True

    async def poll(self) -> Any:
        """Return None while the server runs; a start that was refused has no container that the engine could know.

        Without asking the engine the hub is done with a refused start at once, and everybody hears its reason: while
        it cleans up after a start, it answers "is not starting" to those who ask for the progress.
        """
        return 0 if self._nothing_started else await super().poll()

    async def run_pre_spawn_hook(self) -> None:
        """Take the GPUs here and not in `start`: a place in the queue is not bounded by ``start_timeout``."""
        await super().run_pre_spawn_hook()
        self._find_leftovers()
        await self._old_container_gone()
        if self.gpu_pool.held(self.key):
            raise _no_gpu(
                f"The engine has not removed this server's last container, {self.gpu_pool.releases.refusal(self.key)}. "
                "Try again in a minute. If this stays, the administrator must remove it."
            )
        if self.gpus:
            await self._take_gpus()

    async def start(self) -> Any:
        """Start the server with its GPUs; what it lacks is an error for its user."""
        self._nothing_started = False
        ids = self.gpu_pool.held(self.key)
        others = {key: value for key, value in self.extra_host_config.items() if key != "device_requests"}
        asked = {"device_requests": device_requests(await self._request_form(), ids)} if ids else {}
        self.extra_host_config = {**others, **asked}
        try:
            return await super().start()
        except docker.errors.APIError as exc:
            reason = str(exc.explanation or exc)
            if not ids or not any(words in reason for words in REFUSALS):
                raise
            raise _no_gpu(
                f"The engine could not give this server GPU {', '.join(ids)}: {reason}. The hub's GPUs (FARANDOLE_GPUS "
                "or [[gpu]] in profiles.toml) must be those that `nvidia-smi -L` lists on the host."
            ) from exc

    async def run_post_stop_hook(self) -> None:
        """Free the GPUs. The hub calls this after every end: a stop, a crash, a start that failed."""
        try:
            await maybe_future(super().run_post_stop_hook())
        finally:
            await self._old_container_gone()

    def get_env(self) -> dict[str, str]:
        """Return the server's environment, in which only the engine names GPUs."""
        return gpu_environment(super().get_env(), has_gpus=bool(self.gpu_pool.held(self.key)))

    def get_state(self) -> dict[str, Any]:
        """Return what the hub keeps of the server, its GPUs included for as long as they are not free."""
        state: dict[str, Any] = super().get_state()
        ids = self.gpu_pool.held(self.key)
        return {**state, "gpu_ids": list(ids)} if ids else state

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up a server that was started before this hub was.

        Later the pool knows better: a removal that took long has left GPUs in the state that are free by now, and
        whoever only opens the spawn page has the state loaded.
        """
        super().load_state(state)
        if state.get("gpu_ids") and not self.gpu_pool.complete:
            self.gpu_pool.restore(self.key, state["gpu_ids"])

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what the spawn page and `%cluster start` show, with ``queue``, the place there, while it waits.

        The hub closes this when the start has ended.
        """
        async for event in super().progress():
            yield event
        told: tuple[int, str] | None = None
        async for _ in self.gpu_pool.changes():
            place = self.gpu_pool.place(self.key)
            if place and place != told:
                yield {"progress": 10, "message": place[1], "queue": place[0]}
            elif told and not place:
                yield {"progress": 50, "message": "GPU found, starting", "queue": 0}
            told = place

    async def _take_gpus(self) -> None:
        await self._request_form()
        self.gpu_pool.releases.retry()
        if not self.wait_for_gpus:
            await self._removals_done()
        request = GpuRequest(
            user=self.user.name,
            server=self.name,
            count=self.gpus,
            gpu_class=self.gpu_class,
            together=self.user_options.get("together", 1) if self.wait_for_gpus else 1,
        )
        try:
            ids = await self.gpu_pool.acquire(request, wait=self.wait_for_gpus)
        except NoGpuError as exc:
            raise _no_gpu(str(exc)) from exc
        self.log.info("%s has GPU %s", self._log_name, ", ".join(ids))
        # Before the container exists: a hub that is killed from here on finds both again.
        self.orm_spawner.state = self.get_state()
        self.user.db.commit()

    async def _removals_done(self) -> None:
        """Return when enough GPUs are free, or no removal is on its way any more, or after 5 s.

        Nobody is refused what the engine is about to free.
        """
        pool, loop = self.gpu_pool, asyncio.get_running_loop()
        end = loop.time() + RETRY_SECONDS
        while pool.free(self.gpu_class) < self.gpus and (going := pool.releases.going()) and loop.time() < end:
            await asyncio.wait(going, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)

    async def _request_form(self) -> str:
        """Return how this engine is asked for GPUs; raises `SpawnException` where it has none to give."""
        if self.gpu_request_form != "auto":
            return str(self.gpu_request_form)
        form = offered_form(await self.docker("info"))
        if form is None:
            raise _no_gpu(
                "The engine on this host cannot give GPUs to containers. Install NVIDIA's container toolkit and run "
                "`nvidia-ctk runtime configure --runtime=docker` (or `nvidia-ctk cdi generate`), then restart the "
                "engine; set FARANDOLE_GPU_REQUEST=nvidia where only NVIDIA's hook is installed."
            )
        return form

    def _find_leftovers(self) -> None:
        """Note GPUs of servers that a killed hub was just stopping.

        The hub itself loads servers that run, all of them before anybody can start one.
        """
        if self.gpu_pool.complete:
            return
        stopped = self.user.db.query(orm.Spawner).filter(orm.Spawner.server == None)  # noqa: E711 - an SQL expression
        for found in [each for each in stopped if (each.state or {}).get("gpu_ids")]:
            spawner = self.user.settings["users"][found.user].spawners[found.name]
            spawner.end_container()
        self.gpu_pool.complete = True

    async def _old_container_gone(self) -> None:
        """Return when the server's last container is gone and its GPUs are free; after 30 s this goes on by itself."""
        ids = self.gpu_pool.held(self.key)
        if not ids:
            return
        _, unfinished = await asyncio.wait([self.end_container()], timeout=GONE_SECONDS)
        if unfinished:
            reason = self.gpu_pool.releases.refusal(self.key)
            self.log.warning("GPU %s stays taken, the engine has not removed %s", ", ".join(ids), reason)

    def end_container(self) -> asyncio.Task[None]:
        """Begin, or go on, to remove the container and to free its GPUs."""
        return self.gpu_pool.releases.begin(self.key, self._remove_container)

    async def _remove_container(self) -> str | None:
        """Try to remove the container; returns its name and why it is still there, or None."""
        # By name: a start that was cancelled may not know the container's id yet.
        try:
            await self.docker("remove_container", self.object_name, v=True, force=True)
        except docker.errors.NotFound:
            return None
        except (docker.errors.APIError, requests.RequestException) as exc:
            # It is going (409), the engine does not answer, or refuses: in no case are its GPUs free.
            self.log.debug("Container %s is not gone yet: %s", self.object_name, exc)
            return f"{self.object_name}: {getattr(exc, 'explanation', None) or exc}"
        return f"{self.object_name}: its removal is on the way"


class GpuHandler(APIHandler):  # type: ignore[misc]
    """``GET /hub/api/farandole/gpus``: total, free and held GPUs of each class, for whoever is logged in."""

    gpu_pool: ClassVar[GpuPool]

    async def get(self) -> None:
        """Answer with the pool's public face."""
        if self.current_user is None:
            raise HTTPError(403, "Log in, or send a token.")
        self.finish(self.gpu_pool.public())


def configure_gpus(c: Any, profile_set: ProfileSet, environ: Mapping[str, str]) -> GpuPool:
    """Set up the hub's side of the GPUs; returns the pool, for the class of its spawners."""
    pool = GpuPool(profile_set.gpus)
    c.GpuSpawner.gpu_request_form = environ.get("FARANDOLE_GPU_REQUEST") or "auto"
    handler = type("GpuHandler", (GpuHandler,), {"gpu_pool": pool})
    # Ours counts in its place, see `BurstSpawner`.
    c.JupyterHub.concurrent_spawn_limit = 0
    c.JupyterHub.extra_handlers = [(r"/api/farandole/gpus", handler)]
    return pool


def _no_gpu(message: str) -> SpawnException:
    return refused_start(message, reason="gpu")
