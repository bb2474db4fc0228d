"""Connects a driver to the place where its workers run."""

from __future__ import annotations

from farandole.driver.core.core import ClusterCore
from farandole.driver.workers.addresses import open_session
from farandole.driver.workers.local import LocalWorkers
from farandole.driver.workers.source import HubWorkers
from farandole.driver.workers.worker import Progress, WorkerSource


async def connect(
    name: str, *, local: bool, hub_url: str | None, token: str | None, backend: str | None, on_notice: Progress
) -> ClusterCore:
    """Return the core of a cluster on this machine, or on a hub. The core closes the connection.

    Raises:
        NoClusterError: there is no hub, or no token for it.
        UsageError: an address is wrong.
    """
    session = open_session()
    try:
        source: WorkerSource = LocalWorkers(session) if local else HubWorkers.from_environment(hub_url, token, session)
    except BaseException:
        await session.close()
        raise
    return ClusterCore(name, source, backend=backend, on_notice=on_notice)
