"""The live view of a run, in the output of its cell."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from farandole.runs.view import view_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from farandole.runs.run import Run

STATIC = Path(__file__).parent / "static"
"""The front end. ``extension/labextension/build.py`` builds it; wheels contain it."""

if not (STATIC / "dashboard.js").exists():
    msg = "the dashboard is not built; run `make setup`, or `python extension/labextension/build.py` with Node"
    raise FileNotFoundError(msg)

REFRESH_SECONDS = 1 / 3


class Dashboard(anywidget.AnyWidget):
    """A run in the notebook: status, charts, ranks, logs and a stop button.

    `refresh` may be called from any thread. The synced traits hold the whole view, so a reloaded page shows it again.
    """

    _esm = STATIC / "dashboard.js"
    _css = STATIC / "dashboard.css"

    view = traitlets.Dict(help="The view of the run; see runs/view.py").tag(sync=True)
    per_rank = traitlets.Bool(False, help="Draw one line per rank in place of mean and range").tag(sync=True)
    log_scale = traitlets.List(traitlets.Unicode(), help="Names of the series drawn on a logarithmic scale").tag(
        sync=True
    )
    stopping = traitlets.Bool(False, help="The stop button was pressed").tag(sync=True)

    def __init__(self, run: Run, on_stop: Callable[[], None] | None = None) -> None:
        self._run = run
        self._on_stop = on_stop
        self._refreshing = threading.Lock()
        self._refreshed = 0.0
        super().__init__(view=view_of(run, time.time()))
        # ipykernel sends messages of the page to the thread that sent the last message. This is the thread of the cell,
        # which reads no messages while the cell runs. Without this attribute they go to the subshell of the page.
        self.comm._reply_subshell_for = None
        self.on_msg(self._take_message)
        self.observe(self._per_rank_changed, names="per_rank")

    def refresh(self, *, force: bool = False) -> None:
        """Show the current state of the run, at most every `REFRESH_SECONDS` unless forced or ended."""
        with self._refreshing:
            early = time.monotonic() - self._refreshed < REFRESH_SECONDS
            if early and not force and not self._run.status.ended:
                return
            self._refreshed = time.monotonic()
            self.view = view_of(self._run, time.time(), per_rank=self.per_rank)

    def _per_rank_changed(self, _change: object) -> None:
        self.refresh(force=True)

    def _take_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        if content.get("type") != "stop" or self.stopping or self._run.status.ended:
            return
        self.stopping = True
        if self._on_stop is not None:
            self._on_stop()
