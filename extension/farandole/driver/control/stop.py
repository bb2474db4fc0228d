"""Stops a cluster that this process does not lead."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from farandole.driver.control.control_service import OTHER
from farandole.driver.control.mailbox import DriverStatus, ask, driver_statuses
from farandole.driver.workers.client import HUB_STOP_SECONDS
from farandole.driver.workers.worker import WorkerSource
from farandole.exceptions import FarandoleError


async def stop_cluster(source: WorkerSource, cluster: str, store: Path) -> None:
    """Ask the drivers of a cluster to stop it, and then stop the remaining workers, such as those of a hung driver.

    A driver that does not know of the stop would start the workers again, for example for tasks of Dask that wait.

    Raises:
        NoClusterError: the cluster has no workers and no driver.
        HubError, DeadlineError: the hub has not stopped a worker.
    """
    statuses = await asyncio.to_thread(driver_statuses, store)
    leading = [one for one in statuses if one.cluster == cluster and not one.local and one.hub in {None, source.hub}]
    if not leading and not await source.names(cluster):
        raise await source.no_cluster(cluster)
    await asyncio.gather(*map(_stop_with, leading))
    await source.stop(await source.names(cluster))


async def _stop_with(driver: DriverStatus) -> None:
    # If a driver cannot be asked or fails, the caller stops the workers.
    with suppress(FarandoleError, OSError):
        await ask(driver, "stop", seconds=HUB_STOP_SECONDS, by=OTHER)
