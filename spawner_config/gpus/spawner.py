"""Runs servers with GPUs that `GpuPool` assigns to them before the start and takes back after the stop."""

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
    """A DockerSpawner that acquires GPUs before a server starts, and frees them after its container is removed.

    The stored state of a server contains its GPUs, so that the hub still knows them after a restart. Containers must be
    removed when they stop (``remove = True``), because an engine that restarts a container attaches its old GPUs again.
    """

    gpu_pool: ClassVar[GpuPool]
    """The pool that all spawners of a hub share. It is a class attribute, because traitlets would copy it for each
    spawner."""
    extra_host_config: dict[str, Any]

    gpus = Integer(0, min=0, help="The number of GPUs of the server; set by its profile.")
    gpu_class = Unicode(None, allow_none=True, help="The class of the GPUs; None for any. Set by the profile.")
    wait_for_gpus = Bool(False, help="Whether to queue if no GPU is free; the user's choice.")
    gpu_request_form = Enum(
        REQUEST_FORMS,
        "auto",
        config=True,
        help="The form of requests for GPUs: 'nvidia' for NVIDIA's runtime or hook, 'cdi' for the Container Device "
        "Interface, 'auto' for the form that the engine reports. Example: c.GpuSpawner.gpu_request_form = 'cdi'",
    )

    @property
    def key(self) -> Key:
        """The key of the server in the pool."""
        return self.user.name, self.name

    @property
    def only_waiting(self) -> int:
        """The number of servers that are waiting for a GPU."""
        return len(self.gpu_pool.waiting())

    _nothing_started = False

    def clear_state(self) -> None:
        """Forget the last start; JupyterHub calls this before each start and after each stop."""
        super().clear_state()
        self._nothing_started = True

    async def poll(self) -> Any:
        """Return None while the server is running, else its exit status, or 0 if no container was created.

        A start that was refused before it created a container needs no request to the engine. A request would delay the
        hub's cleanup. During the cleanup, requests for the progress of the start are answered with "is not starting"
        instead of the reason for the refusal.
        """
        return 0 if self._nothing_started else await super().poll()

    async def run_pre_spawn_hook(self) -> None:
        """Acquire the GPUs here and not in `start`, because ``start_timeout`` must not limit the time in the queue."""
        await super().run_pre_spawn_hook()
        self._find_leftovers()
        await self._old_container_gone()
        if self.gpu_pool.held(self.key):
            raise _no_gpu(
                f"The engine has not removed this server's last container, {self.gpu_pool.releases.refusal(self.key)}. "
                "Try again in a minute. If the container remains, the administrator must remove it."
            )
        if self.gpus:
            await self._take_gpus()

    async def start(self) -> Any:
        """Start the server with its GPUs; raises `SpawnException` with a remedy if the engine cannot attach them."""
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
        """Free the GPUs. JupyterHub calls this whenever a server has ended, even after a crash or a failed start."""
        try:
            await maybe_future(super().run_post_stop_hook())
        finally:
            await self._old_container_gone()

    def get_env(self) -> dict[str, str]:
        """Return the server's environment, in which no variable selects GPUs, so that only the engine can do so."""
        return gpu_environment(super().get_env(), has_gpus=bool(self.gpu_pool.held(self.key)))

    def get_state(self) -> dict[str, Any]:
        """Return the state to store, which contains the server's GPUs until they are free."""
        state: dict[str, Any] = super().get_state()
        ids = self.gpu_pool.held(self.key)
        return {**state, "gpu_ids": list(ids)} if ids else state

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the GPUs of a server that was started before the hub restarted.

        Once the pool is complete, the pool is more recent than the stored state, which can still list GPUs that became
        free after a slow removal. Such GPUs must not be restored when the spawn page loads the state.
        """
        super().load_state(state)
        if state.get("gpu_ids") and not self.gpu_pool.complete:
            self.gpu_pool.restore(self.key, state["gpu_ids"])

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress events of a start, for the spawn page and `%cluster start`.

        ``queue`` is the position in the queue. The hub closes this generator at the end of the start.
        """
        async for event in super().progress():
            yield event
        shown: tuple[int, str] | None = None
        async for _ in self.gpu_pool.changes():
            place = self.gpu_pool.place(self.key)
            if place and place != shown:
                yield {"progress": 10, "message": place[1], "queue": place[0]}
            elif shown and not place:
                yield {"progress": 50, "message": "GPU found, starting", "queue": 0}
            shown = place

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
        # Store the GPUs before the container exists, so that the hub can find both after a crash.
        self.orm_spawner.state = self.get_state()
        self.user.db.commit()

    async def _removals_done(self) -> None:
        """Wait until enough GPUs are free or no removal is in progress, for at most `RETRY_SECONDS`.

        Without this wait, the hub would refuse a request for GPUs that the engine is about to free.
        """
        pool, loop = self.gpu_pool, asyncio.get_running_loop()
        end = loop.time() + RETRY_SECONDS
        while pool.free(self.gpu_class) < self.gpus and (removals := pool.releases.in_progress()) and loop.time() < end:
            await asyncio.wait(removals, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED)

    async def _request_form(self) -> str:
        """Return the form of GPU requests for this engine; raises `SpawnException` if it does not support GPUs."""
        if self.gpu_request_form != "auto":
            return str(self.gpu_request_form)
        form = offered_form(await self.docker("info"))
        if form is None:
            raise _no_gpu(
                "The engine on this host cannot give GPUs to containers. Install NVIDIA's container toolkit and run "
                "`nvidia-ctk runtime configure --runtime=docker` (or `nvidia-ctk cdi generate`), then restart the "
                "engine. If only NVIDIA's hook is installed, set FARANDOLE_GPU_REQUEST=nvidia."
            )
        return form

    def _find_leftovers(self) -> None:
        """Find the GPUs of servers that were stopping when the hub was killed, and remove their containers.

        JupyterHub loads all other servers with GPUs before any server can start.
        """
        if self.gpu_pool.complete:
            return
        stopped = self.user.db.query(orm.Spawner).filter(orm.Spawner.server == None)  # noqa: E711 - an SQL expression
        for found in [each for each in stopped if (each.state or {}).get("gpu_ids")]:
            spawner = self.user.settings["users"][found.user].spawners[found.name]
            spawner.end_container()
        self.gpu_pool.complete = True

    async def _old_container_gone(self) -> None:
        """Wait until the server's last container is removed and its GPUs are free, for at most `GONE_SECONDS`."""
        ids = self.gpu_pool.held(self.key)
        if not ids:
            return
        _, unfinished = await asyncio.wait([self.end_container()], timeout=GONE_SECONDS)
        if unfinished:
            reason = self.gpu_pool.releases.refusal(self.key)
            self.log.warning("GPU %s stays in use, because the engine has not removed %s", ", ".join(ids), reason)

    def end_container(self) -> asyncio.Task[None]:
        """Begin removing the container and freeing its GPUs, unless this is already in progress; return the task."""
        return self.gpu_pool.releases.begin(self.key, self._remove_container)

    async def _remove_container(self) -> str | None:
        """Try to remove the container; return None if it no longer exists, else its name and why it still exists."""
        # Use the container's name, because its id can be unknown after a cancelled start.
        try:
            await self.docker("remove_container", self.object_name, v=True, force=True)
        except docker.errors.NotFound:
            return None
        except (docker.errors.APIError, requests.RequestException) as exc:
            # The GPUs are not free yet if the removal is in progress (409), or if the engine refuses it or does not
            # answer.
            self.log.debug("Container %s is not gone yet: %s", self.object_name, exc)
            return f"{self.object_name}: {getattr(exc, 'explanation', None) or exc}"
        return f"{self.object_name}: its removal is in progress"


class GpuHandler(APIHandler):  # type: ignore[misc]
    """``GET /hub/api/farandole/gpus`` returns each class's GPUs (total, free, held, waiting) to any logged-in user."""

    gpu_pool: ClassVar[GpuPool]

    async def get(self) -> None:
        """Send the public state of the pool; answer 403 without a login or token."""
        if self.current_user is None:
            raise HTTPError(403, "Log in, or send a token.")
        self.finish(self.gpu_pool.public())


def configure_gpus(c: Any, profile_set: ProfileSet, environ: Mapping[str, str]) -> GpuPool:
    """Configure the hub for GPUs, and return the pool, which must be set on the spawner class."""
    pool = GpuPool(profile_set.gpus)
    c.GpuSpawner.gpu_request_form = environ.get("FARANDOLE_GPU_REQUEST") or "auto"
    handler = type("GpuHandler", (GpuHandler,), {"gpu_pool": pool})
    # `BurstSpawner.concurrent_starts` replaces this limit, which would also count servers that wait for GPUs.
    c.JupyterHub.concurrent_spawn_limit = 0
    c.JupyterHub.extra_handlers = [*(c.JupyterHub.get("extra_handlers") or []), (r"/api/farandole/gpus", handler)]
    return pool


def _no_gpu(message: str) -> SpawnException:
    return refused_start(message, reason="gpu")
