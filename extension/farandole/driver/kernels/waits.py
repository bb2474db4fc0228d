"""Hints that name the ranks that wait in a collective and the ranks that do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, TypeVar

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.kernels.rpc import answers, ask_in_subshell
from farandole.driver.loop import watched
from farandole.driver.output import label
from farandole.driver.workers.worker import Progress

T = TypeVar("T", bound=Hashable)
V = TypeVar("V")

WAIT_SECONDS = 10.0
"""How many seconds a rank waits in a collective before a hint names it."""
PAUSES = 2
"""How often the ranks are asked again what they are doing before a hint names those that are still waiting."""
FIRST_PAUSE = 0.2
"""The pause before the first question, as a part of the other pauses. Ranks that run short cells are not asked."""
COMPUTING = 0.2
"""The part of the time that a rank may compute in a backward pass in which it waits."""
MOST_GROUPS = 4
"""How many groups of waiting ranks, and how many groups of other ranks, a hint names."""


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What a rank is doing. `farandole.ranks.kernel.activity` explains the fields that it has in common.

    `phrase` completes the sentences "it ..." and "they ...".
    """

    phrase: tuple[str, str]
    call: str = ""
    place: str = ""
    mark: str = ""
    cpu: float = 0.0
    outside: bool = False

    def continues(self, before: Activity, seconds: float) -> bool:
        """Return whether a rank has been waiting in the same collective since `before`, for this many seconds."""
        same = (self.call, self.place, self.mark) == (before.call, before.place, before.mark)
        return bool(self.call) and same and self.cpu - before.cpu < COMPUTING * seconds


ENDED = Activity(phrase=("has ended the cell", "have ended the cell"))
ABSENT = Activity(phrase=("does not run the cell", "do not run the cell"))
SILENT = Activity(phrase=("does not answer", "do not answer"))


@dataclass(frozen=True)
class _Wait:
    """A rank's wait in a collective that others have not called. It has lasted for some `pauses` between questions."""

    activity: Activity
    pauses: int = 0
    named: bool = False

    @property
    def place(self) -> tuple[str, str]:
        return self.activity.call, self.activity.place


class WaitHints:
    """Asks the ranks what they are doing, and gives a hint if some wait in a collective that others do not reach.

    - The ranks are asked soon after the cell has begun, and then every `seconds` / `PAUSES`. Reading a stack is cheap.
    - A rank waits if it is in the same collective each time. A hint names it when it has waited for `seconds`. That is
      at most one pause later, because the wait may have begun just after a question.
    - A wait gets one hint. In a loop, ranks wait in the same place again and again. The next hint about a rank in such
      a place comes only if the rank waits more than twice as long as before.
    """

    def __init__(
        self, group: RankGroup, hint: Progress, *, backend: Callable[[], str], seconds: float = WAIT_SECONDS
    ) -> None:
        self._group = group
        self._hint = hint
        self._backend = backend
        self._pause = seconds / PAUSES
        self._waits: dict[RankKernel, _Wait] = {}
        self._longest: dict[tuple[RankKernel, tuple[str, str]], int] = {}
        """The longest wait of each rank in each place that a hint has named, in pauses."""

    async def during(self, work: Coroutine[Any, Any, V]) -> V:
        """Return the result of a coroutine that executes a cell. Until then, give hints."""
        return await watched(work, self._run())

    async def _run(self) -> None:
        await asyncio.sleep(FIRST_PAUSE * self._pause)
        while True:
            asked = monotonic()
            # Ranks without a backend do not wait for each other.
            self._compare(await self._ask() if self._backend() != "none" else {})
            # A rank that does not answer uses up the pause.
            await asyncio.sleep(max(0.0, asked + self._pause - monotonic()))

    async def _ask(self) -> dict[RankKernel, Activity]:
        """Return what each rank of the world is doing. New ranks of an elastic run may not be in the world yet."""
        kernels = list(self._group.kernels)
        found = await asyncio.gather(*map(self._ask_one, kernels))
        return {kernel: one for kernel, one in zip(kernels, found, strict=True) if not one.outside}

    async def _ask_one(self, kernel: RankKernel) -> Activity:
        if not self._group.runs(kernel):
            return ENDED if self._group.has_ended(kernel) else ABSENT
        if not answers(kernel):
            return SILENT
        reply = await ask_in_subshell(kernel, rank_calls.activity(), self._pause, fresh=False)
        return SILENT if reply is None else activity(reply)

    def _compare(self, found: Mapping[RankKernel, Activity]) -> None:
        """Give a hint if ranks have been waiting since earlier questions, unless a hint has named their waits."""
        # All ranks may be in the same long collective. Then no rank waits for another.
        in_collective = {kernel: one for kernel, one in found.items() if one.call} if _differ(found) else {}
        self._waits = {kernel: self._wait(kernel, one) for kernel, one in in_collective.items()}
        waiting = {kernel: wait for kernel, wait in self._waits.items() if wait.pauses >= PAUSES}
        if self._are_news(waiting):
            self._waits |= {kernel: replace(wait, named=True) for kernel, wait in waiting.items()}
            others = {kernel: one for kernel, one in found.items() if kernel not in waiting}
            self._hint(_hint({kernel: wait.activity for kernel, wait in waiting.items()}, others))
        for kernel, wait in self._waits.items():
            if wait.named:
                self._longest[kernel, wait.place] = max(wait.pauses, self._longest.get((kernel, wait.place), 0))

    def _wait(self, kernel: RankKernel, one: Activity) -> _Wait:
        """Return the wait of a rank that is in a collective, which continues its former wait or is a new one."""
        former = self._waits.get(kernel)
        if former is None or not one.continues(former.activity, self._pause):
            return _Wait(one)
        return replace(former, activity=one, pauses=former.pauses + 1)

    def _are_news(self, waiting: Mapping[RankKernel, _Wait]) -> bool:
        """Return whether a hint is due. It is not due for ranks that join others in a wait that has been named."""
        named = {wait.place for wait in self._waits.values() if wait.named}
        return any(
            wait.place not in named and wait.pauses > 2 * self._longest.get((kernel, wait.place), 0)
            for kernel, wait in waiting.items()
        )


def activity(reply: Reply) -> Activity:
    """Return what a rank is doing, from its reply to `rank_calls.activity`."""
    call, place, doing, mark = (str(reply.value[name]) for name in ("call", "place", "doing", "mark"))
    where = f"in {place} ({doing})" if place else "in no line of the cell"
    if place and call.rpartition(".")[2] != doing.rpartition(".")[2]:
        place = f"{place}, {doing}"
    return Activity(
        phrase=(f"is {where}", f"are {where}"),
        call=call,
        place=place,
        mark=mark,
        cpu=float(reply.value["cpu"]),
        outside=bool(reply.value["outside"]),
    )


def _differ(found: Mapping[RankKernel, Activity]) -> bool:
    """Return whether some ranks are in a collective, and not all ranks are in the same one."""
    return len({one.call for one in found.values()}) > 1


def _hint(waiting: Mapping[RankKernel, Activity], others: Mapping[RankKernel, Activity]) -> str:
    waits = _grouped({kernel.rank: f"{one.call} ({one.place})" for kernel, one in waiting.items()})
    parts = [f"{label(ranks)} wait{'s' * (len(ranks) == 1)} in {call}" for call, ranks in waits.items()]
    for (one, many), ranks in _grouped({kernel.rank: one.phrase for kernel, one in others.items()}).items():
        parts.append(f"{label(ranks)} {f'does not: it {one}' if len(ranks) == 1 else f'do not: they {many}'}")
    return f"{'; '.join(parts)}. If they will not make the same call, interrupt the cell."


def _grouped(texts: Mapping[int, T]) -> dict[T, list[int]]:
    """Return the ranks with each text. Of many groups, only the largest are returned."""
    groups: dict[T, list[int]] = {}
    for rank, text in sorted(texts.items(), key=lambda item: item[0]):
        groups.setdefault(text, []).append(rank)
    largest = sorted(groups, key=lambda text: -len(groups[text]))[:MOST_GROUPS]
    return {text: ranks for text, ranks in groups.items() if text in largest}
