"""The current run of this rank, with its folder, the run to resume from and the callbacks for the end of the run."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.hyperparameters import Hyperparameter
from farandole.protocol import Kind
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.suggestions import did_you_mean


@dataclass(frozen=True, kw_only=True)
class LoadedCheckpoint:
    """The step of a checkpoint that a new rank has loaded, and the number of ranks that wrote the checkpoint."""

    step: int
    ranks: int


class CurrentRun:
    """The run that the driver has announced. ``folder`` and ``resume`` are None between runs and without a driver."""

    def __init__(self) -> None:
        self.begin("", "")

    def begin(self, folder: str, resume: str, overrides: Mapping[str, Hyperparameter] | None = None) -> None:
        """Begin a run in ``folder`` that resumes from the folder ``resume``. An empty string means no folder.

        The hyper-parameters ``overrides`` take precedence over those that the cell gives to ``fd.config``.
        """
        self._exit_callbacks: list[Callable[[], None]] = []
        self._loaders: dict[object, Callable[[], LoadedCheckpoint | None]] = {}
        self._savers: dict[object, Callable[[], None]] = {}
        self.overrides = overrides or {}
        self.config: dict[str, Hyperparameter] = {}
        """The hyper-parameters that the cell has given to ``fd.config`` so far."""
        self.folder = Path(folder) if folder else None
        self.resume = Path(resume) if resume else None

    def end(self, *, failed: bool = False) -> None:
        """Call the callbacks from `at_end` and leave the run. Add a notice for each unused option.

        A cell that ``failed`` may have ended before it used its options, so there is no notice then.
        """
        try:
            with contextlib.ExitStack() as stack:  # all callbacks are called, even if one raises
                for callback in reversed(self._exit_callbacks):
                    stack.callback(callback)
            if context.rank() == 0 and not failed:
                self._notice_unused()
        finally:
            self.begin("", "")

    def _notice_unused(self) -> None:
        if self.resume is not None:
            unused = "the cell did not call fd.checkpoint(state), so nothing was resumed; call it before the loop"
            notice(unused, warning=True)
        for name in [name for name in self.overrides if name not in self.config]:
            hint = did_you_mean(name, self.config)
            unused = f"--config {name} has changed nothing, because the cell did not call fd.config({name}=...).{hint}"
            notice(unused, warning=True)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the run ends."""
        self._exit_callbacks.append(callback)

    def on_catch_up(self, state: object, load: Callable[[], LoadedCheckpoint | None]) -> None:
        """Register ``load`` as the function that `catch_up` calls for this state."""
        self._loaders[state] = load

    def on_leave(self, state: object, save: Callable[[], None]) -> None:
        """Register ``save`` as the function that `leave` calls for this state."""
        self._savers[state] = save

    def leave(self, state: object) -> None:
        """Write a checkpoint of the state's last commit, before all ranks of this world end at this commit."""
        self._savers[state]()

    def has_checkpoints(self, state: object) -> bool:
        """Return whether `catch_up` can load checkpoints into this state."""
        return state in self._loaders

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


def notice(text: str, *, warning: bool = False) -> None:
    """Show the user a one-sentence notice, in the run's dashboard or, if there is no run, on stderr.

    A ``warning`` reports a loss, a hang or a failure.
    """
    if reporter.current().run:
        record = {"kind": Kind.NOTICE, "rank": context.rank(), "time": time.time(), "text": text}
        reporter.send({**record, "warning": warning})
    else:
        print(f"farandole: {text}", file=sys.stderr)
