"""Stops a cluster that this process does not lead."""

from __future__ import annotations

import asyncio
from pathlib import Path

from farandole.driver.control.control_service import OTHER
from farandole.driver.control.mailbox import ask, driver_statuses
from farandole.driver.workers.client import HUB_STOP_SECONDS
from farandole.driver.workers.worker import WorkerSource


async def stop_cluster(source: WorkerSource, cluster: str, store: Path) -> None:
    """Stop a cluster through the drivers that lead it, and then the workers that are left, such as those of a hung one.

    A driver that does not know of the stop would start the workers again, for example for tasks of Dask that wait.

    Raises:
        NoClusterError: the cluster has no workers and no driver.
        HubError, DeadlineError: the hub has not stopped a worker.
    """
    statuses = await asyncio.to_thread(driver_statuses, store)
    leading = [one for one in statuses if one.cluster == cluster and not one.local and one.hub in {None, source.hub}]
    if not leading and not await source.names(cluster):
        raise await source.no_cluster(cluster)
    requests = [ask(one, "stop", seconds=HUB_STOP_SECONDS, by=OTHER) for one in leading]
    # If a driver fails, its workers are stopped below.
    await asyncio.gather(*requests, return_exceptions=True)
    await source.stop(await source.names(cluster))
