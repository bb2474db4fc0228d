"""``fd.checkpoint``: write a state to disk while the training goes on, and go on from what another run wrote."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import torch

from farandole.exceptions import UsageError
from farandole.protocol import CHECKPOINTS
from farandole.ranks import context, rng, run
from farandole.ranks.checkpoints import files as checkpoint_files
from farandole.ranks.checkpoints.files import Content, DamagedError
from farandole.ranks.checkpoints.schedule import parse_every
from farandole.ranks.metrics import reporter
from farandole.ranks.state.nested import broadcast_state
from farandole.ranks.state.state import State
from farandole.ranks.world import collectives

END_SECONDS = 120.0
"""How long the end of a run waits for a checkpoint that is being written."""
MEET = "checkpoint.meet"


def checkpoint(
    state: State,
    every: int | str = "5min",
    keep: int = 3,
    *,
    folder: str | Path | None = None,
    resume: str | Path | None = None,
) -> Checkpoints:
    """Write ``state`` to disk as it is committed; call it once, on all ranks, before the loop.

    ``every`` is a number of commits or a duration (``"10s"``, ``"5min"``); the newest ``keep`` checkpoints stay. They
    are written by rank 0 in a thread, into the run's folder, without a run into ``checkpoints`` in the current folder,
    or into ``folder``. All ranks have to commit at the same steps. What a DataLoader's own processes draw at random is
    drawn anew after a resume in mid-epoch, all else goes on as it was. Under ``%%distributed_train --resume``, or with
    the folder of a run or of checkpoints as ``resume``, the state goes on from the newest checkpoint there that is
    whole, with any number of ranks; `Checkpoints.resumed` is its step.

    Raises: UsageError for a wrong argument, or when there is nothing to resume.
    """
    if type(keep) is not int or keep < 1:
        raise UsageError(f"fd.checkpoint: keep is {keep!r}; keep at least 1.")
    checkpoints = Checkpoints(state, Path(folder) if folder else _own_folder(), every, keep)
    current = run.current()
    if source := Path(resume) if resume else current.resume:
        checkpoints.load(source)
        current.resume = None
    state.on_commit(checkpoints.at_commit)
    current.on_catch_up(state, checkpoints.catch_up)
    if current.folder is not None:
        current.at_end(checkpoints.wait)
    return checkpoints


class Checkpoints:
    """The checkpoints of one state: written in a thread of rank 0's, one at a time."""

    def __init__(self, state: State, folder: Path, every: int | str, keep: int) -> None:
        self.folder = folder.absolute()
        self.resumed: int | None = None
        self._state = state
        self._schedule = parse_every(every)
        self._keep = keep
        self._writer: threading.Thread | None = None
        self._told_slow = self._told_failure = False
        self._tidied = False
        state.extras[MEET] = self._schedule.meet_again(state.commits)

    def at_commit(self, state: State) -> None:
        """Begin to write the state that was just committed, where it is due."""
        if state.commits < state.extras[MEET]:
            return
        if found := self._meet(state):
            self._begin(state, found)

    def save(self) -> None:
        """Commit, and write a checkpoint of that now; wait until it is on disk. All ranks have to call it."""
        self.wait()
        state = self._state
        state.extras[MEET] = state.commits + 2  # not by this commit's hook as well
        state.commit()
        self._begin(state, self._meet(state, anyway=True) or [])
        self.wait()

    def wait(self, timeout: float = END_SECONDS) -> None:
        """Wait until what is being written is on disk, at most ``timeout`` seconds."""
        if self._writer is not None:
            self._writer.join(timeout)
            if self._writer.is_alive():
                run.notice(f"a checkpoint is still being written to {self.folder} after {timeout:g} s; it goes on")

    def load(self, source: Path) -> None:
        """Take up the newest whole checkpoint of a run's folder, or a folder of checkpoints, on all ranks.

        A rank that is added to a run that has resumed may find none there any more, and gets the others' state.

        Raises: UsageError when there is none.
        """
        folder = source / CHECKPOINTS if (source / CHECKPOINTS).is_dir() else source
        # A rank that was added is alone so far, and would wait for rank 0 in vain.
        alone = context.outside()
        found = _newest_whole(checkpoint_files.places(folder)) if alone or context.rank() == 0 else None
        head = collectives.broadcast_bytes(_head(found), root=0)
        if not head and alone:
            run.notice(
                f"there is no whole checkpoint in {source} any more; a new rank goes on from what the others have"
            )
            return
        if not head:
            raise UsageError(
                f"There is no whole checkpoint in {source} to go on from; leave out --resume, or name another run."
            )
        step, seed, rngs = pickle.loads(head)
        state = found.state if found and alone else broadcast_state(found.state if found else {}, root=0)
        self._take_up(Content(step=step, state=state, rngs=rngs, seed=seed))
        self.resumed = step
        if context.rank() == 0 and not alone:
            run.notice(f"resumed from step {step}, {source.name}, written by {len(rngs)} ranks")

    def catch_up(self) -> run.Caught | None:
        """Take up the newest whole checkpoint that this run has written, where it is ahead of the state.

        For a rank that was added: it may be that no other is left that has more.
        """
        places = checkpoint_files.ahead(self.folder, reporter.current().run, self._state.commits)
        found = _newest_whole(places)
        if found is None:
            return None
        self._take_up(found)
        return run.Caught(step=found.step, ranks=len(found.rngs))

    def _take_up(self, content: Content) -> None:
        self._state.load_state_dict(content.state)
        set_random_numbers(content.seed, content.rngs)
        self._state.extras[MEET] = self._schedule.meet_again(self._state.commits)
        self._state.keep()

    def _meet(self, state: State, *, anyway: bool = False) -> list[dict[str, Any]] | None:
        """Ask rank 0 whether a checkpoint is due; return the random numbers of all ranks then, in its order.

        A collective, so of the main thread, and at a commit that all ranks know.
        """
        wanted = (self._schedule.due(state.commits) or anyway) and not self._is_slow()
        own = (wanted, self._schedule.meet_again(state.commits), state.last.state["rng"])
        answers = [pickle.loads(answer) for answer in collectives.gather_bytes(pickle.dumps(own))]
        wanted, state.extras[MEET], _ = answers[0]
        return [answer[2] for answer in answers] if wanted else None

    def _is_slow(self) -> bool:
        slow = self._writer is not None and self._writer.is_alive()
        if slow and not self._told_slow:
            self._told_slow = True
            run.notice(f"{self.folder} is slow: a checkpoint is left out while the one before it is being written")
        return slow

    def _begin(self, state: State, rngs: list[dict[str, Any]]) -> None:
        if context.rank() != 0:
            return
        snapshot = state.last
        snapshot.hold()
        kept = {name: part for name, part in snapshot.state.items() if name != "rng"}
        content = Content(
            step=_step(kept), state=kept, rngs=rngs, seed=torch.initial_seed(), run=reporter.current().run
        )

        def work() -> None:
            try:
                self._write(content)
            finally:
                snapshot.release()

        self._writer = threading.Thread(target=work, name="farandole-checkpoint")
        self._writer.start()

    def _write(self, content: Content) -> None:
        try:
            if not self._tidied:
                checkpoint_files.tidy(self.folder)
                self._tidied = True
            checkpoint_files.write(self.folder, content)
            self._told_failure = False
            checkpoint_files.retain(self.folder, self._keep)
        except OSError as exc:
            self._tell_failure(content.step, exc)

    def _tell_failure(self, step: int, exc: OSError) -> None:
        if not self._told_failure:  # once, until one succeeds: a disk may stay full all night
            self._told_failure = True
            run.notice(
                f"the checkpoint of step {step} could not be written to {self.folder}: {exc.strerror or exc}; the "
                "training goes on, earlier checkpoints stay, and it is tried again whenever one is due"
            )


def _own_folder() -> Path:
    return (run.current().folder or Path.cwd()) / CHECKPOINTS


def _newest_whole(places: list[Path]) -> Content | None:
    """Return the first checkpoint that is whole; the user is told of those that are not."""
    for place in places:
        try:
            return checkpoint_files.read(place)
        except DamagedError as exc:
            if place.exists():  # else another rank has just removed it, since there are newer ones
                run.notice(f"the checkpoint {place} is damaged and left out: {exc}")
    return None


def _head(found: Content | None) -> bytes:
    return pickle.dumps((found.step, found.seed, found.rngs)) if found else b""


def set_random_numbers(seed: int, rngs: list[dict[str, Any]]) -> None:
    """Let this rank's random numbers go on from ``rngs``, by rank; a rank that was not there gets a seed of its own."""
    rank = context.rank()
    if rank < len(rngs):
        rng.restore(rngs[rank])
    else:
        rng.seed(seed, rank)


def _step(state: dict[str, Any]) -> int:
    step = state["values"].get("step")
    return step if type(step) is int else int(state["commits"])
