"""``fd.elastic``: a training loop that goes on when ranks are lost and when others come."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from farandole.protocol import is_collective_failure
from farandole.ranks import context, run
from farandole.ranks.metrics import reporter
from farandole.ranks.world import membership
from farandole.ranks.world.membership import ElasticClient, WorldChange

if TYPE_CHECKING:
    from farandole.ranks.run import Caught
    from farandole.ranks.state.state import State

T = TypeVar("T")


def elastic(loop: Callable[..., T]) -> Callable[..., T]:
    """Return a loop that goes on when its world changes: ``@fd.elastic`` above ``def train(state): ...``.

    The first argument has to be what ``fd.state`` returned. In a run with ``--elastic`` the loop is called again each
    time that ranks were lost or added, with the state of the last commit, so it has to begin where the state says.
    Such a run has one loop, for all epochs. In any other run it is called once.
    """

    @functools.wraps(loop)
    def go(state: State, *arguments: Any, **named: Any) -> T:
        member = membership.current()
        bound = functools.partial(loop, state, *arguments, **named)
        return _go_on(member, state, bound) if member.active else bound()

    return go


def _go_on(member: ElasticClient, state: State, loop: Callable[[], T]) -> T:
    member.enter_loop()
    found = _begin(member, state)
    inside, failed, why = not context.outside(), False, ""
    while True:
        try:
            if not inside:
                member.wait_for_world(state, failed=failed, why=why)
            join(member, state, found)
            found = None
            return loop()
        except WorldChange:
            failed, why = member.broken, ""
        except (Exception, KeyboardInterrupt) as exc:
            if not _is_the_worlds_fault(member, exc):
                raise
            failed, why = True, f"{type(exc).__name__}: {exc}"
        _come_back(member, state, failed=failed)
        inside = False


def _begin(member: ElasticClient, state: State) -> Caught | None:
    """Have commits copied and listened to; a new rank takes up the newest one that is kept.

    It may be that no rank is left that has more. Returns the checkpoint, where it is one.
    """
    from farandole.ranks.checkpoints.memory_checkpoint import MemoryCheckpoint

    keepsake = MemoryCheckpoint(reporter.current().run)
    # A new rank whose cell fails before it has joined leaves them: the next one may have nothing else to go on from.
    run.current().at_end(lambda: None if context.outside() else keepsake.remove())
    # After the copy and before the parting, which ends the commit.
    state.on_commit(lambda _: keepsake.keep(state, member.lr_size))
    state.on_commit(member.at_commit)
    if not context.outside():
        return None
    member.lr_size = keepsake.load(state)
    if found := run.current().catch_up(state):
        member.lr_size = found.ranks
    return found


def _come_back(member: ElasticClient, state: State, *, failed: bool) -> None:
    """Leave a world that failed, and go back to the last commit; begun again where the driver interrupts it."""
    while True:
        try:
            if failed:
                # Whoever waits for this rank in a collective is let go by that, without the driver.
                membership.abandon_world()
            # Also where the ranks only part: a loader that has begun an epoch goes on in it once it is told its place.
            go_back(state)
        except KeyboardInterrupt:
            if not member.interrupted:
                raise
            failed = True
        else:
            return


def _is_the_worlds_fault(member: ElasticClient, exc: BaseException) -> bool:
    if isinstance(exc, KeyboardInterrupt):
        return member.interrupted
    return member.broken or is_collective_failure(type(exc).__name__, str(exc))


def go_back(state: State) -> None:
    """Restore the last commit; gradients of the step that failed are none of it."""
    state.restore()
    for part in state.parts.values():
        if callable(zero := getattr(part, "zero_grad", None)):
            zero()


def join(member: ElasticClient, state: State, found: Caught | None = None) -> None:
    """Take up the work with the ranks of this world, from the state of the one with the most commits.

    ``found`` is the checkpoint that this rank, a new one, has taken up.
    """
    from farandole.ranks.training.parallel import rejoin
    from farandole.ranks.world import collectives

    rejoin(state.parts.values())
    own = {"commits": state.commits, "lr_size": member.lr_size}
    each = [json.loads(row) for row in collectives.gather_bytes(json.dumps(own).encode())]
    root = max(range(len(each)), key=lambda rank: (each[rank]["commits"], -rank))
    if found is not None and root == context.rank():
        run.notice(f"going on from the checkpoint of step {found.step}, no rank was left with a newer commit")
    state.sync(root)
    member.lr_size = each[root]["lr_size"] or context.size()
    if member.lr_rule == "linear" and member.lr_size != context.size():
        scale_rates(state, context.size() / member.lr_size)
        # What the next failure goes back to has to have these rates as well.
        state.keep()
    member.lr_size = context.size()


def scale_rates(state: State, factor: float) -> None:
    """Multiply all learning rates of a state's optimizers, and those that its schedulers begin from and go to."""
    for part in state.parts.values():
        for group in getattr(part, "param_groups", ()):
            # The last two are OneCycleLR's.
            for name in {"lr", "initial_lr", "max_lr", "min_lr"} & set(group):
                group[name] *= factor
        _scale_scheduler(part, factor)


def _scale_scheduler(part: Any, factor: float) -> None:
    for name in ("base_lrs", "max_lrs", "min_lrs"):
        if isinstance(rates := getattr(part, name, None), list):
            setattr(part, name, [rate * factor for rate in rates])
    if isinstance(least := getattr(part, "eta_min", None), float | int):
        part.eta_min = least * factor
    # Those of a chain or a sequence.
    for scheduler in getattr(part, "_schedulers", ()):
        _scale_scheduler(scheduler, factor)
