"""Asks the ranks for their figures; everything has a deadline, and what fails becomes a fault."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.errors import rank_error
from farandole.driver.kernels.group import Cell, RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.preflight.figures import Link, RankFigures, rank_figures
from farandole.driver.preflight.network import endpoints, rounds
from farandole.driver.preflight.result import Preflight
from farandole.driver.workers.worker import WorkerInfo
from farandole.driver.world.backends.base import Seat, seats

DESCRIBE_SECONDS = 60.0
CLOCK_SECONDS = 20.0
CLOCK_TRIPS = 8
ROUND_SECONDS = 60.0
"""How long one round of links may take; the ranks themselves give up sooner."""
LINKS_SECONDS = 90.0
"""When no further round begins."""
STREAMS_SECONDS = 15.0
"""How long all streams together may take, however many pairs there are, and `STREAM_SECONDS` one."""
STREAM_SECONDS = 0.25
REDUCE_SECONDS = 60.0
REDUCED_BYTES = 16 * 2**20
"""As in `farandole.ranks.preflight.probe`."""


async def preflight(name: str, group: RankGroup, infos: Sequence[WorkerInfo], backend: str) -> Preflight:
    """Look at the ranks of a world; ``infos`` holds for each rank the worker that it runs on.

    Raises:
        RankError, DeadlineError: a rank does not even tell what it has.
    """
    placed = seats(infos)
    ranks = await _ranks(group, placed)
    links = await Links(group, placed, infos).measure()
    reduced, error = await _all_reduce(group) if backend != "none" and len(placed) > 1 else (None, "")
    return Preflight(
        name=name, backend=backend, ranks=tuple(ranks), links=tuple(links), all_reduce=reduced, all_reduce_error=error
    )


async def _ranks(group: RankGroup, placed: Sequence[Seat]) -> list[RankFigures]:
    answers = await group.control(
        rank_calls.describe(), what="asking the ranks what they have", timeout=DESCRIBE_SECONDS
    )
    skews = await asyncio.gather(*(_skew(group, kernel) for kernel in group.kernels))
    return [
        rank_figures(answer, rank=seat.rank, worker=seat.worker, address=seat.address, skew=skew[0], skew_error=skew[1])
        for seat, answer, skew in zip(placed, answers, skews, strict=True)
    ]


async def _skew(group: RankGroup, kernel: RankKernel) -> tuple[float, float]:
    """Return how far a rank's clock is ahead of ours and the uncertainty, in seconds.

    The quickest of several round trips is the best: its answer left within half of it from the middle. Source: RFC
    5905, sections 8 and 10.
    """
    trips = []
    for _ in range(CLOCK_TRIPS):
        sent = time.time()
        [theirs] = await group.control(
            rank_calls.clock(), what="asking for the clocks", timeout=CLOCK_SECONDS, kernels=[kernel]
        )
        came = time.time()
        trips.append(((came - sent) / 2, theirs - (sent + came) / 2))
    half, offset = min(trips)
    return offset, half


class Links:
    """Measures the links between the ranks of a world, pair by pair."""

    def __init__(self, group: RankGroup, placed: Sequence[Seat], infos: Sequence[WorkerInfo]) -> None:
        self._group = group
        self._placed = placed
        self._nodes = {seat.rank: info.node for seat, info in zip(placed, infos, strict=True)}

    async def measure(self) -> list[Link]:
        """Return the links between all pairs of workers; on one worker, those between its ranks."""
        planned = rounds(endpoints([seat.worker for seat in self._placed]), self._nodes)
        seconds = min(STREAM_SECONDS, STREAMS_SECONDS / (2 * max(1, len(planned))))
        deadline = time.monotonic() + LINKS_SECONDS
        links: list[Link] = []
        for pairs in planned:
            if time.monotonic() < deadline:
                links += await self._round(pairs, seconds)
            else:
                links += [self._failed(pair, "no time was left to try") for pair in pairs]
        return links

    async def _round(self, pairs: Sequence[tuple[int, int]], seconds: float) -> list[Link]:
        opened = await self._group.control(
            [rank_calls.open_listener(self._placed[second].address) for _, second in pairs],
            what="opening ports to measure the network",
            timeout=ROUND_SECONDS,
            kernels=[self._group.kernels[second] for _, second in pairs],
        )
        ready = [(pair, found["port"]) for pair, found in zip(pairs, opened, strict=True) if "port" in found]
        refused = [
            self._failed(pair, f"rank {pair[1]} cannot listen at {self._placed[pair[1]].address}: {found['error']}")
            for pair, found in zip(pairs, opened, strict=True)
            if "error" in found
        ]
        return refused + await self._dial(ready, seconds)

    async def _dial(self, ready: Sequence[tuple[tuple[int, int], int]], seconds: float) -> list[Link]:
        if not ready:
            return []
        dials = [rank_calls.dial(self._placed[second].address, port, seconds) for (_, second), port in ready]
        dialling = [self._group.kernels[first] for (first, _), _ in ready]
        serving = [self._group.kernels[second] for (_, second), _ in ready]
        answers = await self._group.control(
            [*dials, *[rank_calls.serve(seconds)] * len(ready)],
            what="measuring the network between ranks",
            timeout=ROUND_SECONDS,
            kernels=[*dialling, *serving],
        )
        ends = zip(ready, answers[: len(ready)], answers[len(ready) :], strict=True)
        return [self._link(pair, dialled, served) for (pair, _), dialled, served in ends]

    def _link(self, pair: tuple[int, int], dialled: dict[str, float | str], served: dict[str, float | str]) -> Link:
        if error := dialled.get("error") or served.get("error"):
            return self._failed(pair, str(error))
        return Link(
            first=pair[0],
            second=pair[1],
            local=self._local(pair),
            latency=float(dialled["latency"]),
            bandwidth=min(float(dialled["bytes_per_second"]), float(served["bytes_per_second"])),
        )

    def _failed(self, pair: tuple[int, int], error: str) -> Link:
        return Link(first=pair[0], second=pair[1], local=self._local(pair), error=error)

    def _local(self, pair: tuple[int, int]) -> bool:
        return self._nodes[pair[0]] == self._nodes[pair[1]]


async def _all_reduce(group: RankGroup) -> tuple[float | None, str]:
    """Return the rate in bytes/s of the slowest rank, or why there is none; then no rank waits for another any more."""
    printed: dict[int, str] = {}

    def keep(rank: int, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream" and content["name"] == "stdout":
            printed[rank] = printed.get(rank, "") + content["text"]

    # As a cell: when a rank fails, the others are released from the collective.
    work = Cell(code=f"print({rank_calls.all_reduce().expression})", sink=keep)
    cell = asyncio.create_task(group.run(work, group.kernels, together=True))
    ended, _ = await asyncio.wait([cell], timeout=REDUCE_SECONDS)
    if not ended:
        await group.release(together=True)
    replies = await cell
    if not ended:
        return None, f"it did not end within {REDUCE_SECONDS:g} s"
    if any(reply.status != "ok" for reply in replies):
        return None, " ".join(str(rank_error(replies, doing="the sum")).splitlines())
    times = [json.loads(printed[rank].splitlines()[-1]) for rank in range(len(replies))]
    return REDUCED_BYTES / max(statistics.median(each) for each in times), ""
