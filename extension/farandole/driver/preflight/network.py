"""Plans which pairs of ranks are measured simultaneously, and finds slow links. All functions are pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from farandole.driver.preflight.figures import Link
from farandole.sizes import size_text
from farandole.times import short_text

SLOW_FACTOR = 3.0
SLOW_SECONDS = 0.001
"""A latency is an outlier if it is more than `SLOW_FACTOR` times the usual latency and more than `SLOW_SECONDS` above
it. A bandwidth is an outlier if it is less than the usual bandwidth divided by `SLOW_FACTOR`."""
PLENTY = 1e9
"""A bandwidth above this many bytes/s is never an outlier. Within a machine, such rates depend mostly on CPU load."""
REMEDY = "Check its cable, switch port, Wi-Fi or VPN, and other traffic on it."


def endpoints(workers: Sequence[str]) -> list[int]:
    """Return the ranks to measure: the first rank of each worker, or all ranks if there is only one worker.

    ``workers`` contains the name of each rank's worker.
    """
    firsts = [rank for rank, worker in enumerate(workers) if worker not in workers[:rank]]
    return firsts if len(firsts) > 1 else list(range(len(workers)))


def rounds(ranks: Sequence[int], nodes: Mapping[int, str]) -> list[list[tuple[int, int]]]:
    """Split all pairs of ranks into rounds. Each node occurs once per round at most, so pairs never share bandwidth."""
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
    """Return the faults of the links. ``names`` contains the names to use for the ranks in messages."""
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
    """Compare links of the same kind, first by latency and then by bandwidth."""
    latency = {(link.first, link.second): link.latency for link in links if link.latency is not None}
    bandwidth = {(link.first, link.second): link.bandwidth for link in links if link.bandwidth is not None}
    usual, usual_rate = _usual(latency, min), _usual(bandwidth, max)
    late = {pair: value for pair, value in latency.items() if value > max(SLOW_FACTOR * usual, usual + SLOW_SECONDS)}
    narrow = {pair: value for pair, value in bandwidth.items() if value < min(usual_rate / SLOW_FACTOR, PLENTY)}
    late_text, narrow_text = f"({short_text(usual)} is usual)", f"({rate(usual_rate)} is usual)"
    return [
        *_messages(late, latency, names, lambda value: f"a latency of {short_text(value)} {late_text}"),
        *_messages(narrow, bandwidth, names, lambda value: f"a bandwidth of {rate(value)} {narrow_text}"),
    ]


def _usual(values: Mapping[tuple[int, int], float], best: Callable[[list[float]], float]) -> float:
    """Return the usual value of a link: the median, over all ranks, of each rank's best link.

    The median of all links would be misleading. For example, one slow rank of three is part of two of the three links.
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
    """Return one message for each rank that has several links, all of which are outliers.

    For each other outlier between two ranks without such a message, return one message.
    """
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


def rate(bytes_per_second: float) -> str:
    """Format a rate in bytes per second."""
    return f"{size_text(bytes_per_second)}/s"
