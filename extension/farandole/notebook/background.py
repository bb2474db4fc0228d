"""Shows, waits for and stops background runs. A background run is a run for which no cell is waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from IPython.core.display_functions import publish_display_data

from farandole.exceptions import RunNotFoundError
from farandole.notebook.display import run_bundle
from farandole.notebook.show import RankPrinter
from farandole.notebook.watcher import Watcher

if TYPE_CHECKING:
    from farandole.driver.cells.background import BackgroundRun
    from farandole.driver.cluster import Cluster
    from farandole.runs.store import RunStore


def show_again(cluster: Cluster) -> None:
    """Show dashboard and output of each run that `%cluster attach` has taken over."""
    for background in cluster.background.values():
        background.watch(Watcher())
        background.show(RankPrinter())


def wait_for(store: RunStore, background: Mapping[str, BackgroundRun], key: str, timeout: float | None) -> None:
    """Wait until a run has ended. If the run failed, raise its error.

    For a background run, show the output in the meantime and the chart at the end.
    """
    run_id = key if key in background else store.find(key).id
    if run_id not in background:
        store.load(run_id).wait(timeout)
        return
    try:
        background[run_id].wait(RankPrinter(), timeout)
    finally:
        if background[run_id].run.status.ended:
            publish_display_data(run_bundle(background[run_id].run))


def stop(cluster: Cluster, key: str) -> None:
    """Stop a background run on all ranks and print its status."""
    run_id = key if key in cluster.background else cluster.store.find(key).id
    if run_id not in cluster.background:
        raise RunNotFoundError(
            f"run {run_id} is not a background run of this notebook; `%cluster attach` takes over runs in progress, "
            "and `%cluster interrupt` stops a cell"
        )
    run = cluster.stop_run(run_id)
    print(f"run {run.id} is {run.status}")
