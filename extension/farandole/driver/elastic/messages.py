"""What users are told when the ranks of an elastic run change, a sentence each."""

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

SOURCE = re.compile(r"\[\S+:\d+\] ")
"""Where in its own source a library noticed it, which is longer than what it noticed."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """How a world became another: why, with whom, without whom; `news` is what the ranks said that waited for it."""

    why: Sequence[str]
    joined: Sequence[RankKernel]
    went: Sequence[RankKernel]
    news: dict[RankKernel, dict[str, Any]]

    def text(self, inside: Sequence[RankKernel]) -> str:
        """Say what happened and with how many ranks the run goes on, and from where."""
        told = list(self.why)
        if self.joined:
            told.append(f"{label([kernel.rank for kernel in self.joined])} joined")
        if self.went:
            told.append(f"{count(len(self.went))} left with {_names(self.went)}")
        where = where_from(self.news[kernel] for kernel in inside if kernel in self.news)
        return f"{'; '.join(told)}: going on with {count(len(inside))} from {where}"


def count(ranks: int) -> str:
    """Return `1 rank`, `2 ranks`, ..."""
    return f"{ranks} rank{'' if ranks == 1 else 's'}"


def refusal(reply: Reply, *, last: bool) -> str:
    """Say why a new rank could not join, and whether another is tried."""
    then = "; no other is tried" if last else "; it is tried again"
    if reply.status == "dead":
        return f"a new rank was lost before it could join: {reply.evalue.removeprefix('lost: ')}{then}"
    if reply.status == "ok":
        return f"a new rank could not join, its cell ended before it came to the loop{then}"
    return (
        f"a new rank could not join, its cell ended with {reply.ename}: {reply.evalue}; the cell has to bring all that "
        f"its loop needs, since variables of earlier cells are gone with a lost rank{then}"
    )


def loss(reply: Reply) -> str:
    """Say which rank was lost and why."""
    return f"rank {reply.rank} (worker {reply.worker}) was lost: {reply.evalue.removeprefix('lost: ')}"


def torn(members: Membership) -> str:
    """Say why the world broke where no rank is lost."""
    news = next((news for kernel, news in members.waiting.items() if news["failed"] and kernel in members.inside), None)
    why = SOURCE.sub("", news["why"])[:100] if news else "for no reason that they know"
    return f"the ranks lost their connections ({why})"


def where_from(news: Iterable[dict[str, Any]]) -> str:
    """Say from which step ranks go on that said this when they came to wait."""
    newest = max(news, key=lambda one: one["commits"], default=None)
    if newest is None or newest["commits"] == 0:
        return "the beginning"
    return f"step {newest['step']}" if newest["step"] is not None else f"commit {newest['commits']}"


def _names(kernels: Sequence[RankKernel]) -> str:
    return ", ".join(sorted({f"worker {kernel.worker.name}" for kernel in kernels}))


def too_few(members: Membership, least: int, seconds: float, why: Sequence[str]) -> RankDiedError:
    """Return the error for a run that has waited long enough for new ranks."""
    left = len(members.inside)
    cause = members.refusals[-1] if members.refusals else None
    reason = f" The cell ended with {cause.ename}: {cause.evalue} on a new one." if cause and cause.ename else ""
    return RankDiedError(
        f"{'; '.join(why) or 'ranks left'}; {left} rank{' is' if left == 1 else 's are'} left, fewer than the {least} "
        f"that the run must have (--min-ranks), and no new one came within {seconds:g} s, so it was given "
        f"up.{reason}"
    )
