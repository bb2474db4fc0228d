"""Lets a new rank of an elastic run join the world before its model is sharded, which needs all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.protocol import CHECKPOINT_PREFIX, CHECKPOINTS
from farandole.ranks import run
from farandole.ranks.checkpoints import files
from farandole.ranks.metrics import reporter
from farandole.ranks.world import membership


@dataclass(frozen=True, kw_only=True)
class NewestCheckpoint:
    """How far the run has come: the step of its newest checkpoint, which also counts as its number of commits."""

    step: int | None

    @property
    def commits(self) -> int:
        """The number of commits that the driver compares with those before an earlier failure."""
        return self.step or 0


def join_world() -> None:
    """Wait until all ranks of the run have begun the cell, and form a world with them."""
    membership.current().wait_for_world(NewestCheckpoint(step=_newest_step()), failed=False, together=True)


def _newest_step() -> int | None:
    folder = run.current().folder
    found = files.written_after(folder / CHECKPOINTS, reporter.current().run, 0) if folder is not None else []
    return int(found[0].name.removeprefix(CHECKPOINT_PREFIX)) if found else None
