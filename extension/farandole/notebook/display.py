"""Shows a run in the output of a cell, as one MIME bundle that each client displays in the best form that it knows."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

from IPython.core.display_functions import publish_display_data

from farandole.notebook.chart import static_bundle, summary
from farandole.notebook.progress import progress_line
from farandole.notebook.show import in_kernel
from farandole.runs.run import Run

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

RUN_TYPE = "application/vnd.farandole.run+json"
"""The MIME type that the JupyterLab extension draws; see ``labextension/src/plugins/renderer.tsx``."""
VERSION = 1
PAUSE_SECONDS = 1.0
"""The minimum time between two updates of the picture of an active run."""
PART = 200
"""The pause is at least one part in ``PART`` of the run's time, because Jupyter Server keeps all updates of a kernel in
memory while no page is connected: about 1,200 updates in 8 hours."""
SHARE = 25.0
"""Drawing the picture takes at most one part in ``SHARE`` of the thread's time."""


def run_bundle(run: Run) -> dict[str, Any]:
    """Return the MIME bundle of a run.

    - JupyterLab and Notebook 7 draw the run with this id from the run store, live while it is active.
    - Other clients, such as nbconvert and GitHub, show the chart and the table as HTML, SVG or text. While the run is
      active, there is no SVG, because the HTML contains it and the bundle is sent often.
    """
    known = {RUN_TYPE: {"run": run.id, "version": VERSION}}
    if run.status.ended:
        return {**known, **static_bundle(run, summary(run))}
    bundle = static_bundle(run, progress_line(run))
    return {**known, **{kind: data for kind, data in bundle.items() if kind != "image/svg+xml"}}


def show_runs(shell: InteractiveShell) -> None:
    """Make IPython show the bundle of a run if the last expression of a cell is a `Run`."""
    if shell.display_formatter is not None:
        shell.display_formatter.mimebundle_formatter.for_type(Run, run_bundle)


class RunDisplay:
    """One output of a cell that shows a run until its end, so that a saved notebook contains the final picture once.

    Any thread may call `refresh`. A terminal prints each update, so outside a kernel only the first and the last bundle
    are shown.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._transient = {"display_id": f"farandole-{run.id}-{secrets.token_hex(4)}"}
        self._lock = threading.Lock()
        self._shown: dict[str, Any] = {}
        self._begun = time.monotonic()
        self._due = 0.0
        with self._lock:
            self._show(update=False)

    def refresh(self) -> None:
        """Update the display if it is time for an update, or if the run has ended."""
        with self._lock:
            if self._run.status.ended or (in_kernel() and time.monotonic() >= self._due):
                self._show(update=in_kernel())

    def _show(self, *, update: bool) -> None:
        begun = time.monotonic()
        bundle = run_bundle(self._run)
        if bundle != self._shown:
            self._shown = bundle
            publish_display_data(bundle, transient=self._transient, update=update)
        now = time.monotonic()
        self._due = now + max(PAUSE_SECONDS, SHARE * (now - begun), (now - self._begun) / PART)
