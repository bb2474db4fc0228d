"""Lets the ranks of an elastic run that share a model begin the cell again, and form a world before they share it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from farandole.protocol import CHECKPOINTS, RESTART_EXIT_CODE
from farandole.ranks import context, run
from farandole.ranks.checkpoints import files
from farandole.ranks.metrics import reporter
from farandole.ranks.world import membership
from farandole.ranks.world.interrupts import deferred_interrupts
from farandole.ranks.world.membership import WorldChange

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class NewestCheckpoint:
    """How far the run has come: the step and the number of commits of its newest checkpoint."""

    step: int | None
    commits: int


def join_world() -> None:
    """Wait until all ranks of the run have begun the cell, and form a world with them."""
    membership.current().wait_for_world(_newest(), failed=False, together=True)


def together(work: Callable[[], T]) -> T:
    """Do some work of all ranks that share a model, and return its result.

    If the world of an elastic run changes meanwhile, this process ends. The lost rank's shares exist only in
    checkpoints, and torch cannot move a sharded model to another world. The driver replaces all ranks, and these run
    the cell again.
    """
    member = membership.current()
    try:
        return work()
    except WorldChange:
        _begin_again("")
    except (Exception, KeyboardInterrupt) as exc:
        if not (member.active and member.explains(exc)):
            raise
        _begin_again(f"{type(exc).__name__}: {exc}")


def _begin_again(why: str) -> NoReturn:
    try:
        # If the driver interrupts a rank that takes long, an error would end the cell, and with it the run.
        with deferred_interrupts():
            # Releases other ranks, and a thread that writes a checkpoint with a lost rank. A complete one is published
            # first.
            membership.abandon_world()
            if why:
                print(f"rank {context.rank()} begins the cell again: {why}")
            run.current().end(failed=True)
            reporter.current().flush()
            sys.stdout.flush()
    finally:
        os._exit(RESTART_EXIT_CODE)


def _newest() -> NewestCheckpoint:
    folder = run.current().folder
    found = files.written_after(folder / CHECKPOINTS, reporter.current().run, 0) if folder is not None else []
    newest = files.manifest(found[0]) if found else {}
    return NewestCheckpoint(step=newest.get("step"), commits=newest.get("commits", 0))
