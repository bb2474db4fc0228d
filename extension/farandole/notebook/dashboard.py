"""The live view of a run, in the output of its cell."""

from __future__ import annotations

import re
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

REFRESH_SECONDS = 1 / 3

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";$', re.MULTILINE)


def bundled(name: str) -> str:
    """Return a JavaScript module with the modules that it imports put in place of the imports.

    A widget's front end is one module without files beside it; so no build step is needed to write it as two.
    """
    return _IMPORT.sub(lambda found: bundled(found[1]), (STATIC / name).read_text(encoding="utf-8"))


class Dashboard(anywidget.AnyWidget):
    """A run in the notebook: status, charts, ranks, logs and a stop button.

    `refresh` may be called from any thread. All that is shown is in synced traits, so a reloaded page shows it again.
    """

    _esm = bundled("dashboard.js")
    _css = (STATIC / "dashboard.css").read_text(encoding="utf-8")

    view = traitlets.Dict(help="What is shown; see view.py").tag(sync=True)
    per_rank = traitlets.Bool(False, help="Draw one line a rank in place of mean and spread").tag(sync=True)
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
        # ipykernel sends what the page says to the thread that spoke last: the cell's, which listens to nothing while
        # it runs. Without its rule the message goes where the page meant it to go, to a subshell.
        self.comm._reply_subshell_for = None
        self.on_msg(self._take_message)
        self.observe(self._per_rank_changed, names="per_rank")

    def refresh(self, *, force: bool = False) -> None:
        """Show the run as it stands; too early calls do nothing unless forced or the run has ended."""
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
