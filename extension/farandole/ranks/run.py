"""The current run of this rank, with its folder, the run to resume from and the callbacks for the end of the run."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from farandole.protocol import Kind
from farandole.ranks import context
from farandole.ranks.metrics import reporter


@dataclass(frozen=True, kw_only=True)
class LoadedCheckpoint:
    """The step of a checkpoint that a new rank has loaded, and the number of ranks that wrote the checkpoint."""

    step: int
    ranks: int


class CurrentRun:
    """The run that the driver has announced. ``folder`` and ``resume`` are None between runs and without a driver."""

    def __init__(self) -> None:
        self.begin("", "")

    def begin(self, folder: str, resume: str) -> None:
        """Begin a run in ``folder`` that resumes from the folder ``resume``. An empty string means no folder."""
        self._exit_callbacks: list[Callable[[], None]] = []
        self._loaders: dict[object, Callable[[], LoadedCheckpoint | None]] = {}
        self.folder = Path(folder) if folder else None
        self.resume = Path(resume) if resume else None

    def end(self) -> None:
        """Call the callbacks from `at_end` and leave the run. Warn if the cell should have resumed but did not."""
        try:
            with contextlib.ExitStack() as stack:  # all callbacks are called, even if one raises
                for callback in reversed(self._exit_callbacks):
                    stack.callback(callback)
            if self.resume is not None and context.rank() == 0:
                notice("the cell did not call fd.checkpoint(state), so nothing was resumed; call it before the loop")
        finally:
            self.begin("", "")

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the run ends."""
        self._exit_callbacks.append(callback)

    def on_catch_up(self, state: object, load: Callable[[], LoadedCheckpoint | None]) -> None:
        """Register ``load`` as the function that `catch_up` calls for this state."""
        self._loaders[state] = load

    def catch_up(self, state: object) -> LoadedCheckpoint | None:
        """Load this run's newest checkpoint into the state of a new rank, unless the state is at least as new.

        Returns the checkpoint, or None if nothing was loaded.
        """
        load = self._loaders.get(state)
        return load() if load is not None else None


@functools.cache
def current() -> CurrentRun:
    """Return the `CurrentRun` of this process."""
    return CurrentRun()


def notice(text: str) -> None:
    """Show the user a one-sentence notice, in the run's dashboard or, if there is no run, on stderr."""
    if reporter.current().run:
        reporter.send({"kind": Kind.NOTICE, "rank": context.rank(), "time": time.time(), "text": text})
    else:
        print(f"farandole: {text}", file=sys.stderr)
