"""Plans which pairs of ranks are measured at the same time, and finds outliers. All functions are pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from farandole.driver.preflight.figures import Link

SLOW_FACTOR = 3.0
SLOW_SECONDS = 0.001
"""A latency is an outlier if it exceeds the usual one by this factor and by this time; a bandwidth, by the factor."""
PLENTY = 1e9
"""A bandwidth above this, in bytes/s, is no outlier: within a machine it depends mostly on the load of the CPUs."""
REMEDY = "Check its cable, switch port, Wi-Fi or VPN, and other traffic on it."


def endpoints(workers: Sequence[str]) -> list[int]:
    """Return the ranks to measure: the first of each worker, or all ranks of a single worker.

    ``workers`` holds the name of each rank's worker.
    """
    firsts = [rank for rank, worker in enumerate(workers) if worker not in workers[:rank]]
    return firsts if len(firsts) > 1 else list(range(len(workers)))


def rounds(ranks: Sequence[int], nodes: Mapping[int, str]) -> list[list[tuple[int, int]]]:
    """Return all pairs, grouped in rounds with each node at most once, so that pairs share no bandwidth."""
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
    """Return the faults of the links; ``names`` are the ranks' names in messages."""
    failed = [_failure(link, names) for link in links if link.error]
    measured = [link for link in links if not link.error]
    slow = [
        fault
        for local in (False, True)
        for fault in _outliers([link for link in measured if link.local is local], names)
    ]
    return [*failed, *slow]


def _failure(link: Link, names: Sequence[str]) -> str:
    return (
        f"{names[link.first]} and {names[link.second]} did not reach each other: {link.error}. Make each host's name "
        "resolve to an address that its peers can reach, and check the firewalls between them."
    )


def _outliers(links: Sequence[Link], names: Sequence[str]) -> list[str]:
    """Compare links of one kind: by latency, then by bandwidth."""
    latency = {(link.first, link.second): link.latency for link in links if link.latency is not None}
    bandwidth = {(link.first, link.second): link.bandwidth for link in links if link.bandwidth is not None}
    usual, usual_rate = _usual(latency, min), _usual(bandwidth, max)
    late = {pair: value for pair, value in latency.items() if value > max(SLOW_FACTOR * usual, usual + SLOW_SECONDS)}
    narrow = {pair: value for pair, value in bandwidth.items() if value < min(usual_rate / SLOW_FACTOR, PLENTY)}
    late_text, narrow_text = f"({milliseconds(usual)} is usual)", f"({rate(usual_rate)} is usual)"
    return [
        *_messages(late, latency, names, lambda value: f"a latency of {milliseconds(value)} {late_text}"),
        *_messages(narrow, bandwidth, names, lambda value: f"a bandwidth of {rate(value)} {narrow_text}"),
    ]


def _usual(values: Mapping[tuple[int, int], float], best: Callable[[list[float]], float]) -> float:
    """Return the median over the ranks of each one's best link.

    The median of all links would be wrong: of three ranks' three links, one slow rank has two.
    """
    of_rank: dict[int, list[float]] = defaultdict(list)
    for pair, value in values.items():
        for rank in pair:
            of_rank[rank].append(value)
    return statistics.median(best(found) for found in of_rank.values()) if of_rank else 0.0


def _messages(
    outliers: Mapping[tuple[int, int], float],
    every: Mapping[tuple[int, int], float],
    names: Sequence[str],
    words: Callable[[float], str],
) -> list[str]:
    """Return a message for each rank whose links are all outliers, then one for each remaining pair."""
    counts = {rank: sum(rank in pair for pair in every) for pair in every for rank in pair}
    culprits = [rank for rank, count in counts.items() if count > 1 and sum(rank in pair for pair in outliers) == count]
    messages = []
    for rank in culprits:
        typical = statistics.median(value for pair, value in outliers.items() if rank in pair)
        messages.append(f"{names[rank]} has {words(typical)} to all others. {REMEDY}")
    for (first, second), value in outliers.items():
        if first not in culprits and second not in culprits:
            messages.append(f"{names[first]} and {names[second]} have {words(value)} between them. {REMEDY}")
    return messages


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds as text."""
    return f"{seconds * 1000:.3g} ms"


def rate(bytes_per_second: float) -> str:
    """Return a rate as text."""
    megabytes = bytes_per_second / 1e6
    return f"{megabytes:,.0f} MB/s" if megabytes >= 100 else f"{megabytes:.3g} MB/s"
