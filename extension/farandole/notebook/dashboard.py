"""The dashboard, a widget that shows a run live in the output of its cell."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from farandole.notebook.progress import progress_line
from farandole.runs.view import view_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from farandole.runs.run import Run

STATIC = Path(__file__).parent / "static"
"""Folder of the widget's JavaScript and CSS, which ``extension/labextension/build.py`` builds. Wheels contain it."""

if not (STATIC / "dashboard.js").exists():
    msg = "the dashboard is not built; run `make setup`, or `python extension/labextension/build.py` with Node"
    raise FileNotFoundError(msg)

REFRESH_SECONDS = 1 / 3


class Dashboard(anywidget.AnyWidget):
    """A widget that shows the status, charts, ranks and logs of a run, and a stop button.

    `refresh` may be called from any thread. The synced traits contain all data of the dashboard, so a page can show the
    dashboard again after a reload.
    """

    _esm = STATIC / "dashboard.js"
    _css = STATIC / "dashboard.css"

    view = traitlets.Dict(help="The view of the run; see runs/view.py").tag(sync=True)
    per_rank = traitlets.Bool(False, help="Draw one line per rank in place of mean and range").tag(sync=True)
    log_scale = traitlets.List(traitlets.Unicode(), help="Names of the series drawn on a logarithmic scale").tag(
        sync=True
    )
    shown = traitlets.Bool(False, help="A page has shown the dashboard").tag(sync=True)
    stopping = traitlets.Bool(False, help="The stop button was pressed").tag(sync=True)

    def __init__(self, run: Run, on_stop: Callable[[], None] | None = None) -> None:
        self._run = run
        self._on_stop = on_stop
        self._refreshing = threading.Lock()
        self._refreshed = 0.0
        super().__init__(view=view_of(run, time.time()))
        # ipykernel would deliver messages from the page to the thread that last sent a message to the page. That is the
        # cell's thread, which cannot handle messages while the cell is running. If this attribute is None, ipykernel
        # delivers them to the subshell that the page has chosen.
        self.comm._reply_subshell_for = None
        self.on_msg(self._take_message)
        self.observe(self._per_rank_changed, names="per_rank")

    def refresh(self, *, force: bool = False) -> None:
        """Send the current state of the run to the page.

        Calls within `REFRESH_SECONDS` of the last refresh do nothing, unless ``force`` is true or the run has ended.
        """
        with self._refreshing:
            early = time.monotonic() - self._refreshed < REFRESH_SECONDS
            if early and not force and not self._run.status.ended:
                return
            self._refreshed = time.monotonic()
            self.view = view_of(self._run, time.time(), per_rank=self.per_rank)

    def _per_rank_changed(self, _change: object) -> None:
        self.refresh(force=True)

    def __repr__(self) -> str:
        return progress_line(self._run)

    def _take_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        if content.get("type") == "shown":
            self.shown = True
        if content.get("type") != "stop" or self.stopping or self._run.status.ended:
            return
        self.stopping = True
        if self._on_stop is not None:
            self._on_stop()
