"""Shows the dashboard of a run while the run is active, and a static chart after it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from IPython.core.display_functions import display, publish_display_data

from farandole.notebook.chart import static_bundle
from farandole.notebook.dashboard import Dashboard
from farandole.notebook.progress import ProgressLines
from farandole.notebook.sinks.delivery import Delivery
from farandole.notebook.sinks.mlflow import MLflowTracker
from farandole.notebook.tensorboard import TensorBoardWriter

if TYPE_CHECKING:
    from farandole.driver.cluster import Cluster
    from farandole.runs.run import Run

TRACKER_SECONDS = 10
"""How long the cell of a run that has ended waits for a slow experiment tracker."""


class Watcher:
    """Shows the dashboard of a run, optionally writes TensorBoard event files, and shows a static chart at the end.

    With ``mlflow``, an MLflow tracking URI, it also sends the run there.
    With ``lines``, it also prints the progress of the run now and then if no page shows the dashboard.
    """

    def __init__(
        self, cluster: Cluster, *, tensorboard: bool = False, mlflow: str | None = None, lines: bool = False
    ) -> None:
        self._cluster = cluster
        self._tensorboard = tensorboard
        self._mlflow = mlflow
        self._lines = lines
        self.run: Run | None = None
        self._writer: TensorBoardWriter | None = None
        self._delivery: Delivery | None = None

    def __call__(self, run: Run) -> Callable[[], None]:
        """Show the dashboard of ``run`` and return a function that refreshes the dashboard."""
        self.run = run
        dashboard = Dashboard(run, on_stop=self._cluster.interrupt)
        display(dashboard)
        lines = ProgressLines(run, lambda: dashboard.shown) if self._lines else None
        if self._tensorboard:
            self._writer = TensorBoardWriter(run)
        if self._mlflow is not None:
            self._delivery = Delivery(run, MLflowTracker(self._mlflow))

        def refresh() -> None:
            dashboard.refresh()
            if lines is not None:
                lines.refresh()
            if run.status.ended:
                self._close()

        return refresh

    def leave_picture(self) -> None:
        """Close the event files, and show a static chart and table of the run if it has ended."""
        self._close()
        if self._delivery is not None:
            self._delivery.wait(TRACKER_SECONDS)
        if self.run is not None and self.run.status.ended:
            publish_display_data(static_bundle(self.run))

    def _close(self) -> None:
        """Close the event files and the delivery, unless an earlier call has already closed them."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        if self._delivery is not None:
            self._delivery.close()
