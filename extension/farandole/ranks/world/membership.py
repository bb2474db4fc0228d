"""A rank's place in an elastic run: its main thread trains and waits, the driver's word comes in other threads."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from farandole.exceptions import DeadlineError, UsageError
from farandole.protocol import Kind
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.ranks.world import world

if TYPE_CHECKING:
    from farandole.ranks.state.state import State

WORD_SECONDS = 86_400.0
"""How long a rank waits for a world before it gives up: its driver may be gone for the night, and a rank that was added
is taken in at the next commit, which may be hours away. Meanwhile its worker is busy, so nobody takes it for idle."""
PART_SECONDS = 600.0
"""How long a rank that has parted waits for the others before it breaks the world.

They may have long to go to their commit. Where the driver was lost in between, though, some have not been told, and
wait in a collective for those that have left.
"""
HOLD_SECONDS = 120.0
"""How long a commit waits to hear at which one the ranks part; without a word the training goes on."""

_before: dict[str, str | None] = {}
"""What the variables were that a world has set; None: there was none."""


class WorldChange(BaseException):  # not an Exception, so that no `except Exception` of a training loop keeps it
    """Raised out of ``state.commit()`` where the ranks part to form another world."""


class ElasticClient:
    """What this rank knows of its world.

    The driver calls `mark_world_broken`, `pause_at_next_commit`, `leave_at_commit` and `form`.
    """

    def __init__(self) -> None:
        self.lr_rule = "none"
        self.lr_size: int | None = None
        """The size of the world that the learning rate is meant for; None until this rank has belonged to one."""
        self._word = threading.Condition()
        self._active = self._looping = False
        self._broken = self._interrupted = self._hold = self._waiting = False
        self._part_at: int | None = None
        self._order: dict[str, str] | None = None
        self._commits = 0

    @property
    def active(self) -> bool:
        """True while this rank's cell belongs to an elastic run."""
        return self._active

    @property
    def broken(self) -> bool:
        """True where the driver has said that a rank is lost: whatever the loop raises then is no fault of its own."""
        return self._broken

    @property
    def interrupted(self) -> bool:
        """True where the driver, and not the user, interrupts the loop."""
        return self._interrupted

    @property
    def waits(self) -> bool:
        """True while the main thread waits for an order to form a world and has none."""
        with self._word:
            return self._waiting and self._order is None

    def begin(self, lr_rule: str) -> None:
        """Take part in an elastic run from the next cell on."""
        with self._word:
            self._forget()
            self._active, self._looping, self.lr_rule = True, False, lr_rule
            self.lr_size = None if context.outside() else context.size()

    def end(self) -> None:
        """Take part in no elastic run any more."""
        with self._word:
            self._forget()
            self._active = False

    def enter_loop(self) -> None:
        """Note that the elastic loop of this cell has begun.

        Raises: UsageError where one had begun before.
        """
        if self._looping:
            raise UsageError(
                "a run with --elastic has one elastic loop, and this cell calls a second, or the same again; put all "
                "epochs into one function under @fd.elastic, since a new rank could not know at which call to join"
            )
        self._looping = True

    def mark_world_broken(self, *, interrupted: bool = False) -> None:
        """Have this rank leave its loop: at its next commit, or with whatever the broken world makes it raise."""
        with self._word:
            self._broken, self._interrupted = True, interrupted
            self._word.notify_all()

    def pause_at_next_commit(self) -> int:
        """Have the next commit wait for `leave_at_commit`; return how many there were."""
        with self._word:
            self._hold, self._part_at = True, None
            return self._commits

    def leave_at_commit(self, commits: int) -> None:
        """Have this rank leave its loop at that commit."""
        with self._word:
            self._part_at = commits
            self._word.notify_all()

    def form(self, environment: dict[str, str]) -> None:
        """Have the waiting main thread form the world that the environment describes.

        Raises: DeadlineError where it does not wait.
        """
        with self._word:
            if not self._waiting:
                raise DeadlineError(f"rank {context.rank()} does not wait for a world, so it cannot join one")
            self._order = environment
            self._word.notify_all()

    def at_commit(self, state: State) -> None:
        """Let a commit pass, or raise WorldChange where the ranks part."""
        deadline = time.monotonic() + HOLD_SECONDS
        with self._word:
            self._commits = state.commits
            while not self._broken:
                if self._part_at is not None and self._commits >= self._part_at:
                    break
                if not self._hold or self._part_at is not None:
                    return
                if not self._word.wait(deadline - time.monotonic()):
                    self._hold = False
        raise WorldChange

    def wait_for_world(self, state: State, *, failed: bool, why: str = "") -> None:
        """Tell the driver that this rank waits and form the world that it says; tried again where that fails.

        Raises: DeadlineError where no word comes, or where the last world is never left.
        """
        while True:
            self._commits = state.commits
            parted = not failed and not context.outside()
            order = self._ordered(_news(state, failed=failed, why=why), PART_SECONDS if parted else WORD_SECONDS)
            if order is None and not parted:
                raise DeadlineError(
                    f"rank {context.rank()} waited {WORD_SECONDS:g} s for a new world and heard nothing of its driver, "
                    "which seems to be gone; run the cell again"
                )
            try:
                if order is not None:
                    form_world(order)
                    break
                why = f"rank {context.rank()} waited {PART_SECONDS:g} s for the others to part"
            except Exception as exc:  # whatever a backend raises when a peer is lost while the world forms
                if isinstance(exc, DeadlineError):  # this rank's own fault, and no peer's
                    raise
                why = f"{type(exc).__name__}: {exc}"
            failed = True
            abandon_world()
        with self._word:
            self._forget()
        reporter.send(_news(state, formed=True))

    def _ordered(self, news: dict[str, Any], seconds: float) -> dict[str, str] | None:
        """Say that this rank waits and return the world that it is told, None where no word comes in time."""
        with self._word:
            self._order, self._waiting = None, True
        reporter.send(news)
        with self._word:
            try:
                self._word.wait_for(lambda: self._order is not None, seconds)
                return self._order
            finally:
                self._waiting = False

    def _forget(self) -> None:
        self._broken = self._interrupted = self._hold = self._waiting = False
        self._part_at = self._order = None


def form_world(environment: dict[str, str]) -> None:
    """Leave the world this rank may be in and join the one that the environment describes."""
    leave_world()
    _set_variables(environment)
    world.current().form()


def _set_variables(environment: dict[str, str]) -> None:
    """Set the variables of a world, and put back what only the one before it had: of a rank alone the interface "lo".

    With that it would tell the ranks of other machines an address at which none but itself can be reached.
    """
    for name in _before.keys() - environment.keys():
        value = _before.pop(name)
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    for name, value in environment.items():
        _before.setdefault(name, os.environ.get(name))
        os.environ[name] = value


def leave_world() -> None:
    """Leave the world; a rank that blocks in a collective is released."""
    world.current().leave()


def abandon_world() -> None:
    """Leave a world that is broken, and let all go that wait for this rank."""
    world.current().abandon()


@functools.cache
def current() -> ElasticClient:
    """Return the one membership of this process."""
    return ElasticClient()


def _news(state: State, *, formed: bool = False, failed: bool = False, why: str = "") -> dict[str, Any]:
    step = getattr(state, "step", None)
    return {
        "kind": Kind.MEMBER,
        "formed": formed,
        "failed": failed,
        "why": why,
        "commits": state.commits,
        "step": step if isinstance(step, int) else None,
    }
