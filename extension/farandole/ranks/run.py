"""The run that this rank takes part in: where its folder is, what it goes on from, what to finish before it ends."""

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
class Caught:
    """The checkpoint that a new rank has taken up: its step, and how many ranks there were then."""

    step: int
    ranks: int


class CurrentRun:
    """What the driver said of the run; empty between runs and without a driver."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.resume: Path | None = None
        self._endings: list[Callable[[], None]] = []
        self._catching_up: dict[object, Callable[[], Caught | None]] = {}

    def begin(self, folder: str, resume: str) -> None:
        """Take up a run: its folder, and the folder of the run whose checkpoints it goes on from, or empty texts."""
        self._endings = []
        self._catching_up = {}
        self.folder = Path(folder) if folder else None
        self.resume = Path(resume) if resume else None

    def end(self) -> None:
        """Leave the run, after what `at_end` asked for; a cell that did not take up where it should have is told of."""
        try:
            with contextlib.ExitStack() as endings:  # all of them, also where one raises
                for ending in reversed(self._endings):
                    endings.callback(ending)
            if self.resume is not None and context.rank() == 0:
                notice("the cell did not call fd.checkpoint(state), so nothing was resumed; call it before the loop")
        finally:
            self.begin("", "")

    def at_end(self, ending: Callable[[], None]) -> None:
        """Call ``ending`` before the run ends."""
        self._endings.append(ending)

    def on_catch_up(self, state: object, take_up: Callable[[], Caught | None]) -> None:
        """Have `catch_up` call ``take_up`` for this state."""
        self._catching_up[state] = take_up

    def catch_up(self, state: object) -> Caught | None:
        """Bring a state on a new rank up to what the run has on disk; None, and no change, where nothing is newer."""
        take_up = self._catching_up.get(state)
        return take_up() if take_up is not None else None


@functools.cache
def current() -> CurrentRun:
    """Return the one of this process."""
    return CurrentRun()


def notice(text: str) -> None:
    """Tell the user one sentence: on the run, or on the error stream where there is none."""
    if reporter.current().run:
        reporter.send({"kind": Kind.NOTICE, "rank": context.rank(), "time": time.time(), "text": text})
    else:
        print(f"farandole: {text}", file=sys.stderr)
