"""Hints that name the ranks that wait in a collective and the ranks that do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.kernels.rpc import answers, ask_in_subshell
from farandole.driver.output import label
from farandole.driver.workers.worker import Progress

T = TypeVar("T", bound=Hashable)
V = TypeVar("V")

WAIT_SECONDS = 10.0
"""How many seconds a cell runs before its ranks are asked what they are doing."""
LONGEST_PAUSE = 6.0
"""The longest pause between two questions, as a multiple of `WAIT_SECONDS`."""
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


class WaitHints:
    """Asks the ranks what they are doing, and gives a hint if some wait in a collective that others do not reach.

    - The ranks are asked when the cell has run for `seconds`, and then after growing pauses.
    - A rank waits if it is in the same collective when it is asked a second time, half of `seconds` later. Ranks in a
      training loop are often in different calls, but not for long.
    - Each hint doubles the time before the second question, so that a loop in which ranks often wait causes few hints.
    """

    def __init__(
        self, group: RankGroup, hint: Progress, *, backend: Callable[[], str], seconds: float = WAIT_SECONDS
    ) -> None:
        self._group = group
        self._hint = hint
        self._backend = backend
        self._seconds = seconds
        self._patience = seconds / 2
        self._known: set[frozenset[tuple[RankKernel, str]]] = set()

    async def during(self, work: Coroutine[Any, Any, V]) -> V:
        """Return the result of a coroutine that executes a cell. Until then, give hints."""
        hints = asyncio.create_task(self._run())
        try:
            return await work
        finally:
            hints.cancel()

    async def _run(self) -> None:
        pause = self._seconds
        while True:
            await asyncio.sleep(pause)
            # Ranks without a backend do not wait for each other.
            before = await self._ask() if self._backend() != "none" else {}
            if _differ(before):
                await asyncio.sleep(self._patience)
                self._compare(before, await self._ask())
            pause = min(2 * pause, LONGEST_PAUSE * self._seconds)

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
        reply = await ask_in_subshell(kernel, rank_calls.activity(), self._seconds / 2, fresh=False)
        return SILENT if reply is None else activity(reply)

    def _compare(self, before: Mapping[RankKernel, Activity], after: Mapping[RankKernel, Activity]) -> None:
        """Give a hint if ranks have been waiting since `before`, unless there was a hint for the same collectives."""
        waiting = {
            kernel: one
            for kernel, one in after.items()
            if kernel in before and one.continues(before[kernel], self._patience)
        }
        situation = frozenset((kernel, one.mark) for kernel, one in waiting.items())
        if waiting and _differ(after) and situation not in self._known:
            self._known.add(situation)
            self._patience *= 2
            self._hint(_hint(waiting, {kernel: one for kernel, one in after.items() if kernel not in waiting}))


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
