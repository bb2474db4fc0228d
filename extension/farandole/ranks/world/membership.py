"""A rank's side of an elastic run. The main thread trains and waits, and other threads run the driver's calls."""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from farandole.exceptions import DeadlineError, UsageError
from farandole.protocol import Kind, is_collective_failure
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.ranks.world import launcher, libraries, world
from farandole.ranks.world.interrupts import deferred_interrupts

if TYPE_CHECKING:
    from farandole.ranks.state.state import State

WORLD_SECONDS = 86_400.0
"""Maximum time in seconds that a rank waits for a world.

The limit is long because the driver may be offline overnight, and because a new rank joins only at the next commit,
which may be hours away. A worker with a waiting rank counts as busy, so it is not culled.
"""
PEERS_SECONDS = 600.0
"""Maximum time in seconds that a rank waits after it has left the loop at a commit. It then breaks the world.

The other ranks may need a long time to reach that commit. However, if the driver is lost in the meantime, some ranks
never learn that they should leave the loop, and wait in a collective for the ranks that have left.
"""
PAUSE_SECONDS = 120.0
"""Maximum time in seconds that a paused commit waits for `leave_at_commit`. After that, training continues."""

_saved: dict[str, str | None] = {}
"""Original values of the environment variables that a world has changed. None means that a variable was not set."""


class Progress(Protocol):
    """How far a rank has come: its number of commits, and the attribute ``step``, if there is one."""

    @property
    def commits(self) -> int:
        """The number of commits."""


class WorldChange(BaseException):  # not an Exception, so that `except Exception` in a training loop does not catch it
    """Raised by ``state.commit()`` when the ranks leave the loop to form another world."""


class ElasticClient:
    """This rank's side of an elastic run.

    The main thread trains, and waits in `at_commit` and `wait_for_world`. The driver calls `mark_world_broken`,
    `pause_at_next_commit`, `leave_at_commit` and `form`, which run in other threads and wake the main thread.
    """

    def __init__(self) -> None:
        self.lr_rule = "none"
        self.lr_size: int | None = None
        """World size that the learning rate is scaled for. None on a new rank that has not loaded a commit."""
        # Protects all attributes below. It is notified when the driver changes what the main thread waits for.
        self._changed = threading.Condition()
        self._active = self._looping = False
        self._broken = self._interrupted = self._pausing = self._waiting = False
        self._leave_at: int | None = None
        self._next_world: dict[str, str] | None = None
        self._commits = 0

    @property
    def active(self) -> bool:
        """True while this rank takes part in an elastic run."""
        return self._active

    @property
    def broken(self) -> bool:
        """True if the driver has reported that the world is broken, which explains exceptions in the loop."""
        return self._broken

    @property
    def interrupted(self) -> bool:
        """True if the next interrupt comes from the driver, not from the user."""
        return self._interrupted

    def explains(self, exc: BaseException) -> bool:
        """Return whether an exception in the cell comes from a change of the world, not from the cell or the user."""
        if isinstance(exc, KeyboardInterrupt):
            return self.interrupted
        return self.broken or is_collective_failure(type(exc).__name__, str(exc))

    @property
    def waits(self) -> bool:
        """True while the main thread is waiting for a world that the driver has not announced yet."""
        with self._changed:
            return self._waiting and self._next_world is None

    def begin(self, lr_rule: str) -> None:
        """Take part in the elastic run that starts with the next cell."""
        with self._changed:
            self._reset()
            self._active, self._looping, self.lr_rule = True, False, lr_rule
            self.lr_size = None if context.outside() else context.size()

    def end(self) -> None:
        """Leave the elastic run."""
        with self._changed:
            self._reset()
            self._active = False

    def enter_loop(self) -> None:
        """Record that this cell's elastic loop has started. Raise UsageError if another loop has already started."""
        if self._looping:
            raise UsageError(
                "a run with --elastic can call only one elastic loop, and only once; put all epochs into one function "
                "under @fd.elastic, because a new rank could not know which call to join"
            )
        self._looping = True

    def mark_world_broken(self, *, interrupted: bool = False) -> None:
        """Make this rank leave its loop, at the next commit or with the exception that the broken world causes."""
        with self._changed:
            self._broken, self._interrupted = True, interrupted
            self._changed.notify_all()

    def pause_at_next_commit(self) -> int:
        """Make the next commit wait for `leave_at_commit`, and return the number of commits so far."""
        with self._changed:
            self._pausing, self._leave_at = True, None
            return self._commits

    def leave_at_commit(self, commits: int) -> None:
        """Make this rank leave its loop at the commit with this number."""
        with self._changed:
            self._leave_at = commits
            self._changed.notify_all()

    def form(self, environment: dict[str, str]) -> None:
        """Let the waiting main thread form the world that ``environment`` describes.

        Raises DeadlineError if the main thread is not waiting.
        """
        with self._changed:
            if not self._waiting:
                raise DeadlineError(f"rank {context.rank()} is not waiting for a world, so it cannot join one")
            self._next_world = environment
            self._changed.notify_all()

    def at_commit(self, state: State) -> None:
        """Commit hook that returns to continue the loop, or raises WorldChange to leave it."""
        deadline = time.monotonic() + PAUSE_SECONDS
        with self._changed:
            self._commits = state.commits
            while not self._broken:
                if self._leave_at is not None and self._commits >= self._leave_at:
                    break
                if not self._pausing or self._leave_at is not None:
                    return
                if not self._changed.wait(deadline - time.monotonic()):
                    self._pausing = False
        raise WorldChange

    def wait_for_world(self, state: Progress, *, failed: bool, why: str = "", together: bool = False) -> None:
        """Report that this rank is waiting, and form the world that the driver announces. Retry after a failure.

        ``together`` says that the ranks share a model, so that all of them have begun the cell again.

        Raises DeadlineError if the driver does not announce a world in time, or if the previous world cannot be left.
        """
        while True:
            self._commits = state.commits
            left_at_commit = not failed and not context.outside()
            message = _member_message(state, failed=failed, why=why, together=together)
            environment = self._announced_world(message, PEERS_SECONDS if left_at_commit else WORLD_SECONDS)
            if environment is None and not left_at_commit:
                raise DeadlineError(
                    f"rank {context.rank()} waited {WORLD_SECONDS:g} s for a new world and received nothing from its "
                    "driver, which seems to be gone; run the cell again"
                )
            try:
                if environment is not None:
                    form_world(environment)
                    break
                why = f"rank {context.rank()} waited {PEERS_SECONDS:g} s for the other ranks to leave the world"
            except Exception as exc:  # backends raise various classes if a peer is lost while the world forms
                if isinstance(exc, DeadlineError):  # caused by this rank, not by a peer
                    raise
                why = f"{type(exc).__name__}: {exc}"
            failed = True
            abandon_world()
        with self._changed:
            self._reset()
        self.report_commits(state)

    def report_commits(self, state: Progress) -> None:
        """Report from how many commits this rank continues in the world that has formed."""
        reporter.send(_member_message(state, formed=True))

    def _announced_world(self, message: dict[str, Any], seconds: float) -> dict[str, str] | None:
        """Send ``message`` and return the environment of the world that is announced, or None after ``seconds``."""
        # These are set before sending, because the driver's answer may arrive in another thread before `send` returns.
        with self._changed:
            self._next_world, self._waiting = None, True
        reporter.send(message)
        with self._changed:
            try:
                self._changed.wait_for(lambda: self._next_world is not None, seconds)
                return self._next_world
            finally:
                self._waiting = False

    def _reset(self) -> None:
        self._broken = self._interrupted = self._pausing = self._waiting = False
        self._leave_at = self._next_world = None


def form_world(environment: dict[str, str]) -> None:
    """Leave the current world, if any, and join the world that ``environment`` describes."""
    leave_world()
    _set_variables(environment)
    _set_variables(environment | launcher.set_up())
    libraries.current().adapt()
    with deferred_interrupts():
        world.current().form()


def _set_variables(environment: dict[str, str]) -> None:
    """Set the environment variables of a world, and restore the variables that only the previous world had set.

    For example, a world of one rank sets the network interface to "lo". If the variable kept this value, the rank would
    later announce an address that other machines cannot reach.
    """
    for name in _saved.keys() - environment.keys():
        value = _saved.pop(name)
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    for name, value in environment.items():
        _saved.setdefault(name, os.environ.get(name))
        os.environ[name] = value


def leave_world() -> None:
    """Leave the world. This unblocks a rank that is waiting in a collective."""
    with deferred_interrupts():
        world.current().leave()


def abandon_world() -> None:
    """Leave a broken world, and unblock peers that are waiting for this rank."""
    with deferred_interrupts():
        world.current().abandon()


@functools.cache
def current() -> ElasticClient:
    """Return the `ElasticClient` of this process."""
    return ElasticClient()


def _member_message(
    state: Progress, *, formed: bool = False, failed: bool = False, why: str = "", together: bool = False
) -> dict[str, Any]:
    step = getattr(state, "step", None)
    return {
        "kind": Kind.MEMBER,
        "formed": formed,
        "failed": failed,
        "why": why,
        "commits": state.commits,
        "step": step if isinstance(step, int) else None,
        "together": together,
    }
