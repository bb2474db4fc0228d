"""The use of the user's home, before a run begins and in the status of the cluster."""

from __future__ import annotations

from typing import Any

from farandole.driver.core.core import ClusterCore
from farandole.driver.loop import in_thread
from farandole.exceptions import WorkerStartError
from farandole.quotas.admission import admitted, current_use
from farandole.quotas.home import HomeUse


async def home_use(core: ClusterCore) -> HomeUse | None:
    """Return the use of the home that the runs of a cluster write to, or None if there is no limit.

    The home of this process is that of the workers, unless the driver is outside of the hub. A worker of an earlier
    version does not know its home.
    """
    if not core.source.outside or not core.handles:
        return await in_thread(current_use)
    try:
        return _parsed(await core.handles[0].worker.home())
    except WorkerStartError:
        return None


async def admit_run(core: ClusterCore) -> str:
    """Return a warning with which a run begins, or an empty string. Raises UsageError if the home is full."""
    return admitted(await home_use(core))


def _parsed(answer: dict[str, Any]) -> HomeUse | None:
    if not answer:
        return None
    largest = tuple((str(path), int(size)) for path, size in answer["largest"])
    return HomeUse(used=answer["used"], limit=answer["limit"], free=answer["free"], largest=largest)
