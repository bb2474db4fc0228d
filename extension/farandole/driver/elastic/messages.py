"""Notices that tell the user how the ranks of an elastic run have changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from farandole.driver.elastic.membership import Membership
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.output import label
from farandole.exceptions import RankDiedError
from farandole.protocol import RESTARTED

SOURCE_LINE = re.compile(r"\[\S+:\d+\] ")
"""Matches the source file and line number that Gloo puts before an error message."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The difference between two consecutive worlds.

    ``causes`` are the failures in between, and ``news`` holds what each rank reported when it began to wait for the new
    world.
    """

    causes: Sequence[str]
    joined: Sequence[RankKernel]
    left: Sequence[RankKernel]
    news: dict[RankKernel, dict[str, Any]]

    def text(self, world: Sequence[RankKernel]) -> str:
        """Return what happened, how many ranks continue, and from which step or commit."""
        events = list(self.causes)
        if self.joined:
            events.append(f"{label([kernel.rank for kernel in self.joined])} joined")
        if self.left:
            workers = ", ".join(sorted({f"worker {kernel.worker.name}" for kernel in self.left}))
            events.append(f"{count(len(self.left))} left with {workers}")
        start = position(self.news[kernel] for kernel in world if kernel in self.news)
        return f"{'; '.join(events)}: continuing with {count(len(world))} from {start}"


def count(ranks: int) -> str:
    """Return the number with its noun, such as `1 rank` or `2 ranks`."""
    return f"{ranks} rank{'' if ranks == 1 else 's'}"


def refusal(reply: Reply, *, last: bool) -> str:
    """Return why a new rank could not join, and whether the run will try another."""
    then = "; no more attempts" if last else "; trying again"
    if reply.status == "dead":
        return f"a new rank was lost before it could join: {reply.evalue.removeprefix('lost: ')}{then}"
    if reply.status == "ok":
        return f"a new rank could not join: its cell ended before it reached the loop{then}"
    return (
        f"a new rank could not join: its cell ended with {reply.ename}: {reply.evalue}; the cell has to define "
        f"everything that its loop needs, because a new rank has no variables from earlier cells{then}"
    )


def loss(reply: Reply) -> str:
    """Return which rank was lost, and why."""
    return f"rank {reply.rank} (worker {reply.worker}) was lost: {reply.evalue.removeprefix('lost: ')}"


def losses(lost: Iterable[Reply]) -> list[str]:
    """Return which ranks were lost, and why, except for ranks that only ended because of others."""
    return [loss(reply) for reply in lost if RESTARTED not in reply.evalue]


def connection_loss(members: Membership) -> str:
    """Return why the world broke although no rank was lost."""
    failed = [news for kernel, news in members.waiting.items() if news["failed"] and kernel in members.world]
    why = SOURCE_LINE.sub("", failed[0]["why"])[:100] if failed else "for an unknown reason"
    return f"the ranks lost their connections ({why})"


def position(news: Iterable[dict[str, Any]]) -> str:
    """Return where the ranks continue: at a step, at a commit if there is no step, or at the beginning."""
    newest = max(news, key=lambda one: one["commits"], default=None)
    if newest is None or newest["commits"] == 0:
        return "the beginning"
    return f"step {newest['step']}" if newest["step"] is not None else f"commit {newest['commits']}"


def too_few(members: Membership, least: int, seconds: float, causes: Sequence[str]) -> RankDiedError:
    """Return the error for a run that did not get enough new ranks in time."""
    left = len(members.world)
    last = members.refusals[-1] if members.refusals else None
    reason = f" On a new rank, the cell ended with {last.ename}: {last.evalue}." if last and last.ename else ""
    return RankDiedError(
        f"{'; '.join(causes) or 'ranks left'}; {left} rank{' is' if left == 1 else 's are'} left, fewer than the "
        f"{least} that the run must have (--min-ranks), and no new rank joined within {seconds:g} s, so the run "
        f"was stopped.{reason}"
    )
