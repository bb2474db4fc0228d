"""``fd.elastic``: a training loop that continues when ranks are lost or added."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from farandole.exceptions import UsageError
from farandole.ranks import context, run
from farandole.ranks.metrics import reporter
from farandole.ranks.world import membership
from farandole.ranks.world.membership import ElasticClient, WorldChange

if TYPE_CHECKING:
    from farandole.ranks.state.state import State

T = TypeVar("T")


def elastic(loop: Callable[..., T]) -> Callable[..., T]:
    """Make a training loop elastic, so that it continues when ranks are lost or added.

    In a run with ``--elastic``, the loop is called again after each change of the world, with the state from the last
    commit. If a mesh shards the model, all ranks run the cell again, and continue from the newest checkpoint, which
    they write before they make room for others. In other runs the loop is called once.

    - The loop must start from the epoch and step in its state.
    - A run has one elastic loop, which covers all epochs. With several, a new rank could not know which one to join.

    Args:
        loop (Callable): a function whose first argument is the state from :func:`farandole.state`.

    Returns:
        Callable: a function with the same arguments and the same return value.

    Example::

        @fd.elastic
        def train(state):
            while state.epoch < 10:
                ...
    """

    @functools.wraps(loop)
    def wrapper(state: State, *arguments: Any, **named: Any) -> T:
        member = membership.current()
        bound = functools.partial(loop, state, *arguments, **named)
        return _run_elastic(member, state, bound) if member.active else bound()

    return wrapper


def _run_elastic(member: ElasticClient, state: State, loop: Callable[[], T]) -> T:
    member.enter_loop()
    if state.is_sharded:
        return _run_sharded(member, state, loop)
    loaded = _set_up(member, state)
    inside, failed, why = not context.outside(), False, ""
    while True:
        try:
            if not inside:
                member.wait_for_world(state, failed=failed, why=why)
            join(member, state, loaded)
            loaded = None
            return loop()
        except WorldChange:
            failed, why = member.broken, ""
        except (Exception, KeyboardInterrupt) as exc:
            if not member.explains(exc):
                raise
            failed, why = True, f"{type(exc).__name__}: {exc}"
        _roll_back(member, state, failed=failed)
        inside = False


def _run_sharded(member: ElasticClient, state: State, loop: Callable[[], T]) -> T:
    """Call a loop whose state a mesh shards. If the world changes, all ranks run the cell again.

    `fd.prepare` then waits for the world, and the newest checkpoint is loaded here.
    """
    from farandole.ranks.training.mesh.joining import together

    if not run.current().has_checkpoints(state):
        raise UsageError(
            "an elastic run whose model a mesh shards continues from checkpoints; call fd.checkpoint(state) before the "
            "loop"
        )
    if member.lr_rule != "none":
        raise UsageError("learning rates of a model that a mesh shards stay as they are; leave out --lr-rule")
    state.on_commit(member.at_commit)

    def caught_up() -> T:
        run.current().catch_up(state)
        # Only now is it known, because the checkpoints may be in any folder.
        member.report_commits(state)
        try:
            return loop()
        except WorldChange:
            if not member.broken:
                run.current().leave(state)
            raise

    return together(caught_up)


def _set_up(member: ElasticClient, state: State) -> run.LoadedCheckpoint | None:
    """Register the commit hooks. On a new rank, load the newest commit from this machine or from the run's folder.

    A new rank loads it because all ranks that had this commit may be lost. Returns the checkpoint if the commit came
    from the run's folder, otherwise None.
    """
    from farandole.ranks.checkpoints.memory_checkpoint import MemoryCheckpoint

    copies = MemoryCheckpoint(reporter.current().run)
    # If the cell of a new rank fails before the rank has joined, the copies stay for the next rank.
    run.current().at_end(lambda: None if context.outside() else copies.remove())
    # Copies are made first, because `at_commit` may raise WorldChange, which skips later hooks.
    state.on_commit(lambda _: copies.save(state, member.lr_size))
    state.on_commit(member.at_commit)
    if not context.outside():
        return None
    member.lr_size = copies.load(state)
    if loaded := run.current().catch_up(state):
        member.lr_size = loaded.ranks
    return loaded


def _roll_back(member: ElasticClient, state: State, *, failed: bool) -> None:
    """Restore the last commit, after leaving the world if it failed. Retry if the driver interrupts the rollback."""
    while True:
        try:
            if failed:
                # Unblocks peers that are waiting for this rank in a collective, without the driver's help.
                membership.abandon_world()
            # Needed even if no rank failed, because otherwise a loader would not continue in the middle of its epoch.
            restore_last_commit(state)
        except KeyboardInterrupt:
            if not member.interrupted:
                raise
            failed = True
        else:
            return


def restore_last_commit(state: State) -> None:
    """Restore the last commit and clear the gradients of the failed step, which are not part of a commit."""
    state.restore()
    for part in state.parts.values():
        if callable(zero := getattr(part, "zero_grad", None)):
            zero()


def join(member: ElasticClient, state: State, loaded: run.LoadedCheckpoint | None = None) -> None:
    """Copy the state with the most commits to all ranks of this world.

    If the run's rule for the learning rate is ``linear``, scale the learning rate to the size of this world. ``loaded``
    is the checkpoint that this rank has loaded, if this is a new rank.
    """
    from farandole.ranks.training.parallel import rejoin
    from farandole.ranks.world import collectives

    rejoin(state.parts.values())
    own = {"commits": state.commits, "lr_size": member.lr_size}
    each = [json.loads(row) for row in collectives.gather_bytes(json.dumps(own).encode())]
    root = max(range(len(each)), key=lambda rank: (each[rank]["commits"], -rank))
    if loaded is not None and root == context.rank():
        run.notice(f"resumed from the checkpoint of step {loaded.step}: no other rank has a newer commit")
    state.sync(root)
    member.lr_size = each[root]["lr_size"] or context.size()
    if member.lr_rule == "linear" and member.lr_size != context.size():
        scale_rates(state, context.size() / member.lr_size)
        # The scaled rates become part of the last commit, so that the next rollback restores them.
        state.keep()
    member.lr_size = context.size()


def scale_rates(state: State, factor: float) -> None:
    """Multiply the learning rates of a state's optimizers and schedulers by ``factor``."""
    for part in state.parts.values():
        for group in getattr(part, "param_groups", ()):
            # max_lr and min_lr belong to OneCycleLR.
            for name in {"lr", "initial_lr", "max_lr", "min_lr"} & set(group):
                group[name] *= factor
        _scale_scheduler(part, factor)


def _scale_scheduler(part: Any, factor: float) -> None:
    for name in ("base_lrs", "max_lrs", "min_lrs"):
        if isinstance(rates := getattr(part, name, None), list):
            setattr(part, name, [rate * factor for rate in rates])
    if isinstance(least := getattr(part, "eta_min", None), float | int):
        part.eta_min = least * factor
    # ChainedScheduler and SequentialLR keep their members in this attribute.
    for scheduler in getattr(part, "_schedulers", ()):
        _scale_scheduler(scheduler, factor)
