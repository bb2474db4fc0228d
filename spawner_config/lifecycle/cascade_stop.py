"""Stops the workers when a user's last notebook server stops, and all servers of a user who loses access."""

from __future__ import annotations

import asyncio
from typing import Any

from spawner_config.roles import is_notebook, is_worker

CANCEL_SECONDS = 1.0


async def stop_workers(spawner: Any) -> None:
    """Stop all workers of a user after the user's last notebook server has stopped (``c.Spawner.post_stop_hook``).

    This includes workers that are starting or waiting in a queue. Endpoints continue.
    """
    others = {name: other for name, other in spawner.user.spawners.items() if other is not spawner and other.active}
    if not is_notebook(spawner.name) or any(is_notebook(name) for name in others):
        return
    workers = [other for name, other in others.items() if is_worker(name)]
    stops = [_begin_stop(spawner.user, worker) for worker in workers if worker.pending != "stop"]
    for outcome in await asyncio.gather(*stops, return_exceptions=True):
        if isinstance(outcome, Exception):
            spawner.log.error("A worker of %s was not stopped", spawner.user.name, exc_info=outcome)


async def stop_servers(user: Any, seconds: float) -> list[str]:
    """Stop all servers of a user, even those that are starting; return the names of servers that are still active."""
    active = [spawner for spawner in user.spawners.values() if spawner.active]
    stops = {spawner.name: _begin_stop(user, spawner) for spawner in active if spawner.pending != "stop"}
    if stops:
        await asyncio.wait(stops.values(), timeout=seconds)
    failed = {name for name, stop in stops.items() if stop.done() and (stop.cancelled() or stop.exception())}
    for name in failed:
        user.log.error("Server %r of %s was not stopped", name, user.name, exc_info=_cause(stops[name]))
    return sorted(failed | {spawner.name for spawner in active if spawner.active})


def _cause(stop: asyncio.Future[None]) -> BaseException | None:
    return None if stop.cancelled() else stop.exception()


def _begin_stop(user: Any, worker: Any) -> asyncio.Future[None]:
    """Begin stopping a server as JupyterHub's handlers do, so that later stop requests await the same future."""
    starting = worker._spawn_future
    if starting is not None:
        starting.cancel()
    worker._stop_pending = True
    worker._stop_future = asyncio.ensure_future(_stop(user, worker, starting))
    return worker._stop_future  # type: ignore[no-any-return]


async def _stop(user: Any, worker: Any, starting: asyncio.Future[None] | None) -> None:
    try:
        if starting is not None:
            await asyncio.wait([starting], timeout=CANCEL_SECONDS)
        await user.settings["proxy"].delete_user(user, worker.name)
        await user.stop(worker.name)
    finally:
        worker._stop_pending = False
        worker._stop_future = None
