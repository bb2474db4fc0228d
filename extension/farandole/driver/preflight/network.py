"""Which pairs of ranks are measured when, and which of them are odd: pure functions."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from farandole.driver.preflight.figures import Link

SLOW_FACTOR = 3.0
SLOW_SECONDS = 0.001
"""A latency is odd when it is that many times the others' and so much longer; a bandwidth that many times smaller."""
PLENTY = 1e9
"""From so many bytes/s on no bandwidth is odd: it depends on what the CPUs do meanwhile, within a machine above all."""
REMEDY = "Look at its cable, switch port, Wi-Fi or VPN, and at what else uses it."


def endpoints(workers: Sequence[str]) -> list[int]:
    """Return the ranks to measure between: the first of each worker, on a single worker all of them.

    ``workers`` names for each rank its worker.
    """
    firsts = [rank for rank, worker in enumerate(workers) if worker not in workers[:rank]]
    return firsts if len(firsts) > 1 else list(range(len(workers)))


def rounds(ranks: Sequence[int], nodes: Mapping[int, str]) -> list[list[tuple[int, int]]]:
    """Return all pairs in rounds in which no rank, and no node, takes part twice: it would share its own bandwidth."""
    planned: list[list[tuple[int, int]]] = []
    taken: list[set[str]] = []
    for pair in combinations(ranks, 2):
        both = {nodes[rank] for rank in pair}
        turn = next((turn for turn, others in enumerate(taken) if not both & others), len(planned))
        if turn == len(planned):
            planned.append([])
            taken.append(set())
        planned[turn].append(pair)
        taken[turn] |= both
    return planned


def link_faults(links: Sequence[Link], names: Sequence[str]) -> list[str]:
    """Return what is wrong with the links; ``names`` are the ranks in words."""
    failed = [_failure(link, names) for link in links if link.error]
    measured = [link for link in links if not link.error]
    slow = [
        fault
        for local in (False, True)
        for fault in _odd_ones([link for link in measured if link.local is local], names)
    ]
    return [*failed, *slow]


def _failure(link: Link, names: Sequence[str]) -> str:
    return (
        f"{names[link.first]} and {names[link.second]} did not reach each other: {link.error}. Let each host's own "
        "name lead to an address that its peers reach, and let no firewall stand between them."
    )


def _odd_ones(links: Sequence[Link], names: Sequence[str]) -> list[str]:
    """Compare links of one kind: by latency, then by bandwidth."""
    latency = {(link.first, link.second): link.latency for link in links if link.latency is not None}
    bandwidth = {(link.first, link.second): link.bandwidth for link in links if link.bandwidth is not None}
    usual = _usual(latency, min)
    late = {pair: value for pair, value in latency.items() if value > max(SLOW_FACTOR * usual, usual + SLOW_SECONDS)}
    usual_rate = _usual(bandwidth, max)
    narrow = {pair: value for pair, value in bandwidth.items() if value < min(usual_rate / SLOW_FACTOR, PLENTY)}
    return [
        *_told(
            late, latency, names, lambda value: f"a latency of {milliseconds(value)} ({milliseconds(usual)} is usual)"
        ),
        *_told(narrow, bandwidth, names, lambda value: f"a bandwidth of {rate(value)} ({rate(usual_rate)} is usual)"),
    ]


def _usual(values: Mapping[tuple[int, int], float], best: Callable[[list[float]], float]) -> float:
    """Return the median over the ranks of each one's best link.

    The median of all links would not do: with three ranks one slow rank has two of the three.
    """
    of_rank: dict[int, list[float]] = defaultdict(list)
    for pair, value in values.items():
        for rank in pair:
            of_rank[rank].append(value)
    return statistics.median(best(found) for found in of_rank.values()) if of_rank else 0.0


def _told(
    odd: Mapping[tuple[int, int], float],
    every: Mapping[tuple[int, int], float],
    names: Sequence[str],
    words: Callable[[float], str],
) -> list[str]:
    """Name a rank whose links are all odd once, then the pairs that are left."""
    counts = {rank: sum(rank in pair for pair in every) for pair in every for rank in pair}
    culprits = [rank for rank, count in counts.items() if count > 1 and sum(rank in pair for pair in odd) == count]
    told = []
    for rank in culprits:
        typical = statistics.median(value for pair, value in odd.items() if rank in pair)
        told.append(f"{names[rank]} has {words(typical)} to all others. {REMEDY}")
    for (first, second), value in odd.items():
        if first not in culprits and second not in culprits:
            told.append(f"{names[first]} and {names[second]} have {words(value)} between them. {REMEDY}")
    return told


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, in words."""
    return f"{seconds * 1000:.3g} ms"


def rate(bytes_per_second: float) -> str:
    """Return a rate in words."""
    megabytes = bytes_per_second / 1e6
    return f"{megabytes:,.0f} MB/s" if megabytes >= 100 else f"{megabytes:.3g} MB/s"
