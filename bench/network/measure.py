"""Trains in each mode on one, two and three hosts with slow links, and compares the speeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.network import parameters, prediction
from bench.network.links import slow_hosts
from bench.network.training import CONFIG, start, step_time
from bench.record import Record, median_of, ratio_of_pairs
from bench.site import bench_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from farandole import Run


def measure(repeats: int) -> Iterator[Record]:
    """Yield the speeds of all modes, the bytes of mode auto, the cost of a straggler and the errors of predictions."""
    with slow_hosts(parameters.HOSTS, parameters.MEGABITS), bench_hub(config=CONFIG):
        yield _alone(1, _step_times(1, {"alone": parameters.ALONE}, repeats)["alone"])
        for hosts in range(2, parameters.HOSTS + 1):
            found = _step_times(hosts, {"alone": parameters.ALONE, **parameters.MODES}, repeats)
            alone = found.pop("alone")
            yield _alone(hosts, alone)
            for name, runs in found.items():
                yield from _records(name, hosts, [seconds for seconds, _ in alone], runs)
            yield _traffic(hosts, found)
        yield _straggler(repeats)
    yield from prediction.measure()


def _alone(hosts: int, runs: list[tuple[float, Run]]) -> Record:
    """Return the time of a step on hosts that train at the same time and do not communicate."""
    return median_of(f"network_step_ms_{hosts}", [1000 * seconds for seconds, _ in runs], "ms")


def _records(name: str, hosts: int, alone: list[float], runs: list[tuple[float, Run]]) -> Iterator[Record]:
    yield median_of(f"network_step_ms_{name}_{hosts}", [1000 * seconds for seconds, _ in runs], "ms")
    yield median_of(f"network_megabytes_{name}_{hosts}", [_sent(run) / 1e6 for _, run in runs], "MB a step and rank")
    pairs = [(one, seconds) for one, (seconds, _) in zip(alone, runs, strict=True)]
    limit = f">= {parameters.EFFICIENCY}" if name == "auto" else ""
    note = "; ".join(runs[0][1].notices) if name == "auto" else ""
    place = f"network_efficiency_{hosts}" if name == "auto" else f"network_efficiency_{name}_{hosts}"
    yield ratio_of_pairs(place, pairs, limit=limit, note=note or "s a step without communication : here")


def _traffic(hosts: int, found: dict[str, list[tuple[float, Run]]]) -> Record:
    """Return the bytes that a rank sends in a step of mode auto, as a fraction of those of its parameters."""
    ratios = [_sent(run) / parameters.PARAMETER_BYTES for _, run in found["auto"]]
    name = "network_bytes_ratio" if hosts == parameters.HOSTS else f"network_bytes_ratio_{hosts}"
    return median_of(name, ratios, "of the parameters")


def _sent(run: Run) -> float:
    """Return the bytes that a rank sends in a step, as a mean."""
    figures = run.info.sync.values()
    return float(sum(one["bytes_per_step"] for one in figures) / len(figures))


def _straggler(repeats: int) -> Record:
    """Return by how much a rank that is four times slower slows down the others in mode asynchronous, in percent."""
    sync = parameters.MODES["asynchronous"]
    found = _step_times(parameters.HOSTS, {"even": sync, "slow": sync}, repeats, steps=parameters.SHORT_STEPS)
    costs = [100 * (late / early - 1) for (early, _), (late, _) in zip(found["even"], found["slow"], strict=True)]
    return median_of("network_straggler_cost_percent", costs, "%", limit=f"<= {parameters.STRAGGLER_PERCENT:g}")


def _step_times(
    hosts: int, modes: dict[str, str], repeats: int, *, steps: int = parameters.STEPS
) -> dict[str, list[tuple[float, Run]]]:
    """Return the seconds of a step on the slowest rank, and the run, for each repetition of each mode.

    The last rank is slower in the mode with the name ``slow``, and does not count there.
    """
    with start(hosts) as cluster:
        found: dict[str, list[tuple[float, Run]]] = {name: [] for name in modes}
        for _ in range(repeats):
            for name, sync in modes.items():
                straggler = parameters.STRAGGLER if name == "slow" else 1
                found[name].append(step_time(cluster, sync, name=name, steps=steps, straggler=straggler))
        return found
