"""The actions of ``%runs`` on one run. A background run is a run for which no cell is waiting.

The docstrings of `ACTIONS` are the help on the actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from IPython.core.display_functions import publish_display_data

from farandole.exceptions import RunNotFoundError
from farandole.notebook.display import run_bundle
from farandole.notebook.listing import RunList
from farandole.notebook.progress import ProgressLines
from farandole.notebook.show import RankPrinter
from farandole.notebook.watcher import Watcher
from farandole.runs.origin import origin

if TYPE_CHECKING:
    from farandole.driver.cells.background import BackgroundRun
    from farandole.driver.cluster import Cluster
    from farandole.runs.store import RunStore


def show_again(cluster: Cluster) -> None:
    """Show dashboard and output of each run that `%cluster attach` has taken over."""
    for background in cluster.background.values():
        background.watch(Watcher())
        background.show(RankPrinter())


def show_active(cluster: Cluster) -> None:
    """Show the chart and the output of each run in progress. Its earlier dashboard and its trackers stay connected."""
    for background in cluster.background.values():
        if not background.run.status.ended:
            publish_display_data(run_bundle(background.run))
            background.show(RankPrinter())


def list_runs(store: RunStore, background: Mapping[str, BackgroundRun], limit: int) -> RunList:
    """List the newest runs, as `%runs` alone does. `%runs show?`, `%runs wait?` and `%runs stop?` explain the others.

    Options: --limit
    """
    return RunList(store.list()[:limit], detached=background)


def show(store: RunStore, key: str) -> None:
    """Show the chart and the table of a run with `%runs show ID`.

    ID is the run's id, the beginning of its id, or its name.
    """
    publish_display_data(run_bundle(store.load(key)))


def wait_for(store: RunStore, background: Mapping[str, BackgroundRun], key: str, timeout: float | None) -> None:
    """Wait until a run has ended, with `%runs wait ID`. If the run failed, raise its error.

    For a background run, show the output in the meantime and the chart at the end.
    A client that is no page with notebooks also gets a line of progress now and then.

    Options: --timeout
    """
    run_id = key if key in background else store.find(key).id
    if run_id not in background:
        store.load(run_id).wait(timeout)
        return
    run = background[run_id].run
    # Pages with notebooks name the cell in their request, and they show the dashboard of the run.
    refresh = (lambda: None) if origin().cell else ProgressLines(run).refresh
    try:
        background[run_id].wait(RankPrinter(), timeout, refresh=refresh)
    finally:
        if run.status.ended:
            publish_display_data(run_bundle(run))


def stop(cluster: Cluster, key: str) -> None:
    """Stop a background run on all ranks with `%runs stop ID`, and print its status."""
    run_id = key if key in cluster.background else cluster.store.find(key).id
    if run_id not in cluster.background:
        raise RunNotFoundError(
            f"run {run_id} is not a background run of this notebook; `%cluster attach` takes over runs in progress, "
            "and `%cluster interrupt` stops a cell"
        )
    run = cluster.stop_run(run_id)
    print(f"run {run.id} is {run.status}")


ACTIONS: dict[str, Callable[..., object]] = {"list": list_runs, "show": show, "wait": wait_for, "stop": stop}
"""The actions of ``%runs`` by name."""
