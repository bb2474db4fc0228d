"""Measures the ranks of a cluster. Every call has a timeout. If a link or the all-reduce fails, the result says why."""

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
from farandole.driver.preflight.figures import Link, RankFigures, driver_figures, rank_figures
from farandole.driver.preflight.fit import predict_fit
from farandole.driver.preflight.modes import AllReduce, measure, predict
from farandole.driver.preflight.network import endpoints, rounds
from farandole.driver.preflight.result import Preflight
from farandole.driver.workers.worker import WorkerInfo
from farandole.driver.world.backends.base import RankAssignment, assign_ranks

DESCRIBE_SECONDS = 60.0
CLOCK_SECONDS = 20.0
CLOCK_TRIPS = 8
ROUND_SECONDS = 60.0
"""Timeout for one round of links, in seconds. The timeouts on the ranks are shorter."""
LINKS_SECONDS = 90.0
"""No new round of links begins after this many seconds."""
STREAMS_SECONDS = 15.0
"""The maximum time in seconds for the data streams of all rounds together. Each round has one stream in each direction,
and a stream takes at most `STREAM_SECONDS`."""
STREAM_SECONDS = 0.25
REDUCE_SECONDS = 60.0


async def preflight(
    name: str,
    group: RankGroup,
    infos: Sequence[WorkerInfo],
    backend: str,
    *,
    outside: bool = False,
    model: str = "",
    batch: str = "",
) -> Preflight:
    """Check the ranks of a world; ``infos`` describes the worker of each rank.

    ``outside`` says whether the driver is outside the workers' hub; see `DriverFigures`.
    ``model`` and ``batch`` are names of variables on the ranks. With a model, the result predicts whether it fits, and
    with a batch and a model that fits on each rank, the model's speed.

    Raises:
        RankError, DeadlineError: a rank died, did not answer in time, or could not describe its machine.
        UsageError: the variables are no model and batch.
    """
    # The model comes first, so that a mistake in its name is reported at once.
    fit = await predict_fit(group, model) if model else None
    # The modes train the whole model on each rank.
    measured = await measure(group, backend, model, batch) if batch and (fit is None or fit.whole) else []
    ranks = assign_ranks(infos)
    figures = await _figures(group, ranks)
    links = await Links(group, ranks, infos).measure()
    reduced, error = await _all_reduce(group) if backend != "none" and len(ranks) > 1 else (None, "")
    about, modes = (await predict(group, model, measured, reduced)) if measured and reduced else (None, ())
    return Preflight(
        name=name,
        backend=backend,
        driver=driver_figures(outside=outside),
        ranks=tuple(figures),
        links=tuple(links),
        all_reduce=reduced.rate if reduced else None,
        all_reduce_error=error,
        model=about,
        modes=modes,
        fit=fit,
    )


async def _figures(group: RankGroup, ranks: Sequence[RankAssignment]) -> list[RankFigures]:
    found = await group.control(rank_calls.describe(), what="reading the ranks' resources", timeout=DESCRIBE_SECONDS)
    skews = await asyncio.gather(*(_skew(group, kernel) for kernel in group.kernels))
    return [
        rank_figures(answer, rank=one.rank, worker=one.worker, address=one.address, skew=skew, skew_error=error)
        for one, answer, (skew, error) in zip(ranks, found, skews, strict=True)
    ]


async def _skew(group: RankGroup, kernel: RankKernel) -> tuple[float, float]:
    """Return how many seconds a rank's clock is ahead of the driver's, and the uncertainty in seconds.

    The fastest of several round trips gives the best estimate, because the rank read its clock at most half a round
    trip before or after the midpoint. Source: RFC 5905, sections 8 and 10.
    """
    trips = []
    for _ in range(CLOCK_TRIPS):
        sent = time.time()
        [theirs] = await group.control(
            rank_calls.clock(), what="reading the ranks' clocks", timeout=CLOCK_SECONDS, kernels=[kernel]
        )
        came = time.time()
        trips.append(((came - sent) / 2, theirs - (sent + came) / 2))
    half, offset = min(trips)
    return offset, half


class Links:
    """Measures the network links between the ranks of a world, pair by pair."""

    def __init__(self, group: RankGroup, ranks: Sequence[RankAssignment], infos: Sequence[WorkerInfo]) -> None:
        self._group = group
        self._ranks = ranks
        self._nodes = {rank: info.node for rank, info in enumerate(infos)}

    async def measure(self) -> list[Link]:
        """Return the links between all pairs of workers. For a single worker, return the links between its ranks."""
        planned = rounds(endpoints([one.worker for one in self._ranks]), self._nodes)
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
            [rank_calls.open_listener(self._ranks[second].address) for _, second in pairs],
            what="opening ports to measure the network",
            timeout=ROUND_SECONDS,
            kernels=[self._group.kernels[second] for _, second in pairs],
        )
        ready = [(pair, found["port"]) for pair, found in zip(pairs, opened, strict=True) if "port" in found]
        refused = [
            self._failed(pair, f"rank {pair[1]} cannot listen at {self._ranks[pair[1]].address}: {found['error']}")
            for pair, found in zip(pairs, opened, strict=True)
            if "error" in found
        ]
        return refused + await self._dial(ready, seconds)

    async def _dial(self, ready: Sequence[tuple[tuple[int, int], int]], seconds: float) -> list[Link]:
        if not ready:
            return []
        dials = [rank_calls.dial(self._ranks[second].address, port, seconds) for (_, second), port in ready]
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


async def _all_reduce(group: RankGroup) -> tuple[AllReduce | None, str]:
    """Return the figures of the slowest rank, or an error. No rank is left blocked in the collective."""
    printed: dict[int, str] = {}

    def keep(rank: int, kind: str, content: dict[str, Any], _position: object) -> None:
        if kind == "stream" and content["name"] == "stdout":
            printed[rank] = printed.get(rank, "") + content["text"]

    # The sum runs as a cell, because the group then releases the other ranks from the collective if one rank fails.
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
    latency, large = (max(map(statistics.median, each)) for each in zip(*times, strict=True))
    return AllReduce(latency=latency, large=large), ""
