"""``fd.checkpoint``: write a state to disk during training, and resume from an earlier checkpoint."""

from __future__ import annotations

import errno
import pickle
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from farandole.exceptions import UsageError
from farandole.protocol import CHECKPOINTS
from farandole.ranks import context, rng, run
from farandole.ranks.checkpoints import files, sharded
from farandole.ranks.checkpoints.files import Content
from farandole.ranks.checkpoints.schedule import parse_every
from farandole.ranks.metrics import reporter
from farandole.ranks.state.nested import broadcast_state
from farandole.ranks.state.state import State
from farandole.ranks.training.mesh.joining import together
from farandole.ranks.world import collectives, membership
from farandole.runs.checkpoints.intact import DamagedError
from farandole.runs.checkpoints.trust import UntrustedError

END_SECONDS = 120.0
"""Maximum time in seconds that the end of a run waits for a checkpoint that is being written."""
WRITER = "farandole-checkpoint"
"""Name of the threads that write checkpoints."""
NEXT_DECISION = "checkpoint.meet"
"""Key in the state's extras for the commit at which the ranks next decide together whether a checkpoint is due."""


def checkpoint(
    state: State,
    every: int | str = "5min",
    keep: int = 3,
    *,
    folder: str | Path | None = None,
    resume: str | Path | None = None,
) -> Checkpoints:
    """Write ``state`` to disk during training, and resume from an earlier checkpoint.

    Call this function once, on all ranks, before the training loop.

    - Rank 0 writes the checkpoints at ``state.commit()``, in a background thread. All ranks must commit at the same
      steps. If a mesh or a pipeline divides the model, each rank writes its part, so that all of them need the same
      folder.
    - A resumed run may have a different number of ranks. It continues with the saved model, optimizer, position in the
      data and random numbers. Additional ranks are seeded from the saved seed. After a resume in the middle of an
      epoch, the random numbers that a DataLoader's worker processes draw are different.
    - The checkpoint of a pipeline can only be continued with the same ``split`` and the same number of ranks.

    Args:
        state (State): the state to write, from :func:`farandole.state`.
        every (int or str): number of commits between checkpoints, or a duration, e.g. ``"10s"``, ``"5min"``, ``"1h"``.
        keep (int): number of checkpoints to keep, at least 1. Older checkpoints are deleted.
        folder (str or Path, optional): the folder to write to. The default is ``checkpoints`` in the run's folder, or
            in the current folder outside a run.
        resume (str or Path, optional): the folder of a run, or a folder of checkpoints, to resume from. The default is
            the run that ``%%distributed_train --resume`` names, if any.

    Returns:
        Checkpoints: its attribute ``resumed`` is the step of the checkpoint that was loaded, or None.

    Raises:
        UsageError: an argument is wrong, there is no intact checkpoint to resume from, other users may have written
            the checkpoint, or it is that of another model or pipeline.
    """
    if type(keep) is not int or keep < 1:
        raise UsageError(f"fd.checkpoint: keep is {keep!r}; it must be a whole number of at least 1.")
    current, place = run.current(), Path(folder).expanduser() if folder else _default_folder()

    def resumed() -> Checkpoints:
        made = Checkpoints(state, place, every, keep)
        if source := Path(resume).expanduser() if resume else current.resume:
            made.load(source)
            current.resume = None
        return made

    checkpoints = together(resumed) if state.is_sharded else resumed()
    state.on_commit(checkpoints.at_commit)
    current.on_catch_up(state, checkpoints.catch_up)
    current.on_leave(state, checkpoints.write_last)
    if current.folder is not None:
        current.at_end(checkpoints.wait)
    return checkpoints


class Checkpoints:
    """The checkpoints of one state, which are written one at a time, in a background thread.

    Rank 0 writes them, or all ranks of a mesh or a pipeline together.

    Attributes:
        folder (Path): the folder that contains the checkpoints.
        resumed (int or None): step of the checkpoint that was loaded at the start.
    """

    def __init__(self, state: State, folder: Path, every: int | str, keep: int) -> None:
        self.folder = folder.absolute()
        self._in_run = self.folder.parent == run.current().folder
        self.resumed: int | None = None
        self._state = state
        self._schedule = parse_every(every)
        self._keep = keep
        self._writer: threading.Thread | None = None
        self._written = 0
        """The number of commits of the newest checkpoint that has been begun."""
        self._slow_noticed = self._failure_noticed = False
        self._tidied = self._is_cut = False
        # On each rank, a thread writes its part of a sharded state.
        self._background = sharded.background() if state.is_sharded and context.size() > 1 else None
        self._leads = self._background is None or context.rank() == 0
        state.extras[NEXT_DECISION] = self._schedule.next_decision(state.commits)

    def at_commit(self, state: State) -> None:
        """If a checkpoint is due, start writing the state that was just committed."""
        if state.commits < state.extras[NEXT_DECISION]:
            return
        if found := self._decide(state):
            self._start_writing(state, found)

    def save(self) -> None:
        """Commit, write a checkpoint of that commit and wait until it is on disk. All ranks must call this method.

        If an earlier checkpoint is still being written after `END_SECONDS`, a notice says so and none is written.
        """
        self.wait()
        state = self._state
        state.extras[NEXT_DECISION] = state.commits + 2  # prevents the commit hook from also writing a checkpoint
        state.commit()
        self.write_last()

    def write_last(self) -> None:
        """Write a checkpoint of the last commit, unless there is one, and wait until it is on disk; see `save`."""
        self.wait()
        if self._state.commits != self._written and (found := self._decide(self._state, force=True)):
            self._start_writing(self._state, found)
            self.wait()

    def wait(self, timeout: float = END_SECONDS) -> None:
        """Wait at most ``timeout`` seconds until the checkpoint that is being written is on disk."""
        if self._writer is not None:
            self._writer.join(timeout)
            if self._writer.is_alive():
                slow = f"a checkpoint is still being written to {self.folder} after {timeout:g} s; it continues"
                run.notice(slow, warning=True)

    def load(self, source: Path) -> None:
        """Load the newest intact checkpoint from a run's folder, or from a folder of checkpoints, on all ranks.

        A rank that joins a resumed run later may no longer find a checkpoint there. Such a rank receives the state from
        the other ranks instead, or from this run's checkpoints if a mesh shards the state.

        Raises:
            UsageError: there is no intact checkpoint, or other users may have written the checkpoint.
        """
        folder = source / CHECKPOINTS if (source / CHECKPOINTS).is_dir() else source
        if self._state.is_sharded:
            content = sharded.read_newest(partial(files.checkpoint_paths, folder), self._state)
        else:
            content = _received(folder, self._state)
        if content is not None:
            self._resume(content, source)
        elif context.outside():
            gone = f"{source} no longer has an intact checkpoint; a new rank gets the state of the other ranks"
            run.notice(gone, warning=True)
        elif membership.current().active and self._state.is_sharded and self._newer():
            if context.rank() == 0:
                gone = f"{source} no longer has an intact checkpoint; the run continues from its own"
                run.notice(gone, warning=True)
        else:
            raise UsageError(
                f"{source} has no intact checkpoint to resume from; leave out --resume, or name another run."
            )

    def catch_up(self) -> run.LoadedCheckpoint | None:
        """Load this run's newest intact checkpoint into a new rank, if the checkpoint is newer than the rank's state.

        This is needed if none of the remaining ranks has a newer state. If a mesh shards the state, all ranks load the
        checkpoint together.
        """
        if self._state.is_sharded:
            return self._catch_up_together()
        try:
            content = _newest_intact(self._newer())
        except UntrustedError as exc:
            run.notice(str(exc), warning=True)
            return None
        if content is None:
            return None
        self._load_content(content)
        return run.LoadedCheckpoint(step=content.step, ranks=content.ranks)

    def _catch_up_together(self) -> run.LoadedCheckpoint | None:
        content = sharded.read_newest(self._newer, self._state)
        if content is None:
            return None
        self._resume(content, self.folder)
        return run.LoadedCheckpoint(step=content.step, ranks=content.ranks)

    def _newer(self) -> list[Path]:
        """Return this run's checkpoints that are newer than the state, newest first."""
        return files.written_after(self.folder, reporter.current().run, self._state.commits)

    def _resume(self, content: Content, source: Path) -> None:
        self._load_content(content)
        self.resumed = content.step
        if context.rank() == 0 and not context.outside():
            run.notice(f"resumed from step {content.step}, {source.name}, written by {content.ranks} ranks")

    def _load_content(self, content: Content) -> None:
        self._state.load_state_dict(content.state)
        set_random_numbers(content.seed, content.rngs, sharded.place(self._state).share)
        self._state.extras[NEXT_DECISION] = self._schedule.next_decision(self._state.commits)
        self._state.keep()

    def _decide(self, state: State, *, force: bool = False) -> list[dict[str, Any]] | None:
        """Let rank 0 decide whether to write a checkpoint. If so, return the random states of all shares of the batch.

        This is a collective, so it must run in the main thread, at a commit that all ranks agree on.
        """
        due = self._schedule.due(state.commits) or force
        share = sharded.place(state).share
        own = (due, self._is_writing, self._schedule.next_decision(state.commits), share, state.last.state["rng"])
        answers = [pickle.loads(answer) for answer in collectives.gather_bytes(pickle.dumps(own))]
        due, _, state.extras[NEXT_DECISION], *_ = answers[0]
        # A thread of another rank may end a moment after that of rank 0.
        if due and any(answer[1] for answer in answers):
            self._notice_slowness()
            return None
        by_share = {share: states for *_, share, states in answers}
        return [by_share[share] for share in sorted(by_share)] if due else None

    @property
    def _is_writing(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def _notice_slowness(self) -> None:
        if context.rank() == 0 and not self._slow_noticed:
            self._slow_noticed = True
            text = f"{self.folder} is slow: a checkpoint is skipped while the previous one is still being written"
            run.notice(text, warning=True)

    def _start_writing(self, state: State, rngs: list[dict[str, Any]]) -> None:
        self._written = state.commits
        if context.rank() != 0 and self._background is None:
            return
        snapshot = state.last
        snapshot.acquire()
        kept = {name: part for name, part in snapshot.state.items() if name != "rng"}
        content = Content(
            step=_step(kept),
            state=kept,
            rngs=rngs,
            seed=torch.initial_seed(),
            run=reporter.current().run,
            ranks=context.size(),
        )

        def work() -> None:
            try:
                self._write(content)
            finally:
                snapshot.release()

        if self._background is not None:
            self._writer = self._background.start(work, WRITER)
        else:
            self._writer = threading.Thread(target=work, name=WRITER)
            self._writer.start()

    def _write(self, content: Content) -> None:
        try:
            if self._background is not None:
                group, staged = self._background.group, self._state.is_staged
                sharded.write(self.folder, content, group, staged=staged, before=self._tidy)
            else:
                self._tidy()
                files.write(self.folder, content)
            self._failure_noticed = False
            if self._leads:
                files.retain(self.folder, self._keep)
        except ConnectionError as exc:
            # The world was left or a rank was lost, and both end the training. If it continues, the next checkpoint
            # says why there is none.
            if self._leads and self._is_cut:
                self._notice_failure(content.step, exc)
            self._is_cut = True
        except OSError as exc:
            if self._leads:
                self._notice_failure(content.step, exc)

    def _tidy(self) -> None:
        self._refuse_link()
        if not self._tidied:
            files.tidy(self.folder)
            self._tidied = True

    def _refuse_link(self) -> None:
        # Old checkpoints are removed, and others who can write to the run's folder must not choose which ones.
        if self._in_run and self.folder.is_symlink():
            raise OSError(errno.ELOOP, "the folder is a symbolic link; pass the `folder` to write to")

    def _notice_failure(self, step: int, exc: OSError) -> None:
        if not self._failure_noticed:  # one notice until a write succeeds, because a disk may stay full for hours
            self._failure_noticed = True
            run.notice(
                f"the checkpoint of step {step} could not be written to {self.folder}: {exc.strerror or exc}; the "
                "training continues, earlier checkpoints stay, and the next due checkpoint is tried again",
                warning=True,
            )


def _default_folder() -> Path:
    return (run.current().folder or Path.cwd()) / CHECKPOINTS


def _received(folder: Path, target: State) -> Content | None:
    """Return the newest intact checkpoint, or None. Rank 0 reads it for all ranks that are in the world.

    Raises UsageError if other users may have written the checkpoint, or if it cannot be loaded into ``target``.
    """
    alone = context.outside()
    # A new rank is not in the world yet, so a broadcast from rank 0 would never reach it.
    found, own_head = _found(folder) if alone or context.rank() == 0 else (None, b"")
    head = collectives.broadcast_bytes(own_head, root=0)
    if not head:
        return None
    received = pickle.loads(head)
    if isinstance(received, str):
        raise UsageError(received)
    content, stages = cast("tuple[Content, int]", received)
    sharded.check_stages(stages, target)
    state = found.state if found and alone else broadcast_state(found.state if found else {}, root=0)
    return replace(content, state=state)


def _found(folder: Path) -> tuple[Content | None, bytes]:
    """Return the newest intact checkpoint, and a pickle to send to the other ranks.

    The pickle contains the checkpoint without its state, and the number of its stages, or the reason why the checkpoint
    is refused. It is empty if there is no intact checkpoint.
    """
    try:
        found = _newest_intact(files.checkpoint_paths(folder))
    except UntrustedError as exc:
        return None, pickle.dumps(str(exc))
    if found is None:
        return None, b""
    return found, pickle.dumps((replace(found, state={}), sharded.stages_in(found)))


def _newest_intact(paths: list[Path]) -> Content | None:
    """Return the first intact checkpoint, or None. Show the user a notice about each damaged checkpoint before it.

    Raises `UntrustedError` if other users may have written a checkpoint.
    """
    for path in paths:
        try:
            return files.read(path)
        except DamagedError as exc:
            files.notice_damage(path, exc)
    return None


def set_random_numbers(seed: int, rngs: list[dict[str, Any]], share: int) -> None:
    """Restore this rank's random numbers, which are those of its share of the batch. Seed a share without any."""
    if share < len(rngs):
        rng.restore(rngs[share])
    else:
        rng.seed(seed, share)


def _step(state: dict[str, Any]) -> int:
    step = state["values"].get("step")
    return step if type(step) is int else int(state["commits"])
