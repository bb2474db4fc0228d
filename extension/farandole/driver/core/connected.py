"""Checks whether a driver is still connected to all of its cluster, so that it need not attach again."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from contextlib import suppress

from farandole.driver.core.core import ClusterCore
from farandole.driver.loop import in_thread
from farandole.driver.recovery.reattach import find_runs
from farandole.driver.workers.source import HubWorkers
from farandole.driver.workers.worker import WorkerSource
from farandole.exceptions import FarandoleError, RunNotFoundError
from farandole.protocol import Status
from farandole.runs.store import RunStore


async def is_connected(core: ClusterCore, hub_url: str | None, *, store: RunStore, known: Container[str]) -> bool:
    """Return whether attaching to the cluster of this name on this hub would find nothing that the driver lacks.

    - The cluster is on this hub, has not ended, and all its ranks answer.
    - No other driver has added workers to the cluster, and all runs in progress on its workers are ``known``.

    Raises:
        NoClusterError, UsageError: there is no such hub.
    """
    kernels = core.group.kernels
    if core.ended or not kernels or not _is_on(core.source, hub_url):
        return False
    if not all(await asyncio.gather(*(kernel.worker_answers() for kernel in kernels if kernel.alive))):
        return False
    # A rank may have died before the last answer arrived.
    return all(kernel.alive for kernel in kernels) and not await _has_more(core, store, known)


def _is_on(source: WorkerSource, hub_url: str | None) -> bool:
    """Return whether workers are on a hub. `Cluster.attach` finds it in the same way."""
    if not isinstance(source, HubWorkers):
        return False
    client = source.client
    return HubWorkers.from_environment(hub_url, None, client.session).client.url == client.url


async def _has_more(core: ClusterCore, store: RunStore, known: Container[str]) -> bool:
    """Return whether the hub has workers of the cluster, or the workers have runs, that this driver lacks."""
    # If the hub does not answer now, attaching would fail, and the ranks are connected anyway.
    with suppress(FarandoleError):
        # During a change of size, the workers that start are not in the list yet.
        if not core.busy and not set(await core.source.names(core.name)) <= set(core.workers):
            return True
        found = await find_runs([handle.worker for handle in core.handles])
        others = [run.id for run in found if run.id not in known]
        return await in_thread(lambda: any(_goes_on(run, store) for run in others))
    return False


def _goes_on(run: str, store: RunStore) -> bool:
    """Return whether the store lacks the end of a run. A run that is not in the store was deleted by the user."""
    try:
        status = store.find(run).status
    except RunNotFoundError:
        return False
    return not status.ended or status is Status.LOST
