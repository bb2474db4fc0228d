"""The dashboard of a run in progress, and its static chart afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from IPython.core.display_functions import display, publish_display_data

from farandole.notebook.chart import static_bundle
from farandole.notebook.dashboard import Dashboard
from farandole.notebook.tensorboard import TensorBoardWriter

if TYPE_CHECKING:
    from farandole.driver.cluster import Cluster
    from farandole.runs.run import Run


class Watcher:
    """Shows the dashboard of a run in progress, and a static chart at its end."""

    def __init__(self, cluster: Cluster, *, tensorboard: bool = False) -> None:
        self._cluster = cluster
        self._tensorboard = tensorboard
        self.run: Run | None = None
        self._writer: TensorBoardWriter | None = None

    def __call__(self, run: Run) -> Callable[[], None]:
        """Show the dashboard and return the function that refreshes it."""
        self.run = run
        dashboard = Dashboard(run, on_stop=self._cluster.interrupt)
        display(dashboard)
        if self._tensorboard:
            self._writer = TensorBoardWriter(run)

        def refresh() -> None:
            dashboard.refresh()
            if run.status.ended:
                self._close()

        return refresh

    def leave_picture(self) -> None:
        """Show the current chart and table of the run."""
        self._close()
        if self.run is not None:
            publish_display_data(static_bundle(self.run))

    def _close(self) -> None:
        """Close the event files once, also if a detached run ends long after its cell."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
