"""Trains in each mode on one, two and three hosts with slow links, and compares the speeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farandole import Cluster

from bench.network import parameters
from bench.network.links import slow_hosts
from bench.notebook import silence
from bench.record import Record, median_of, ratio_of_pairs
from bench.site import bench_hub, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from farandole import Run

FOLDER = Path(__file__).parent
CELL = (FOLDER.parent / "loops" / "network_step.py").read_text(encoding="utf-8")


def measure(repeats: int) -> Iterator[Record]:
    """Yield the speeds of all modes, the bytes of mode auto, and the cost of a straggler."""
    with slow_hosts(parameters.HOSTS, parameters.MEGABITS), bench_hub(config=FOLDER / "jupyterhub_config.py"):
        alone = _step_times(1, {"alone": '"step"'}, repeats)["alone"]
        yield median_of("network_step_ms_1", [1000 * seconds for seconds, _ in alone], "ms")
        for hosts in range(2, parameters.HOSTS + 1):
            found = _step_times(hosts, parameters.MODES, repeats)
            for name, runs in found.items():
                yield from _records(name, hosts, [seconds for seconds, _ in alone], runs)
            yield _traffic(hosts, found)
        yield _straggler(repeats)


def _records(name: str, hosts: int, alone: list[float], runs: list[tuple[float, Run]]) -> Iterator[Record]:
    yield median_of(f"network_step_ms_{name}_{hosts}", [1000 * seconds for seconds, _ in runs], "ms")
    if runs[0][1].info.sync:  # modes that average in each step do not count their bytes
        yield median_of(
            f"network_megabytes_{name}_{hosts}", [_sent(run) / 1e6 for _, run in runs], "MB a step and rank"
        )
    pairs = [(one, seconds) for one, (seconds, _) in zip(alone, runs, strict=True)]
    limit = f">= {parameters.EFFICIENCY}" if name == "auto" else ""
    note = "; ".join(runs[0][1].notices) if name == "auto" else ""
    place = f"network_efficiency_{hosts}" if name == "auto" else f"network_efficiency_{name}_{hosts}"
    yield ratio_of_pairs(place, pairs, limit=limit, note=note or "s a step on one host : here")


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
    found = _step_times(parameters.HOSTS, {"even": sync, "slow": sync}, repeats)
    costs = [100 * (late / early - 1) for (early, _), (late, _) in zip(found["even"], found["slow"], strict=True)]
    return median_of("network_straggler_cost_percent", costs, "%", limit=f"<= {parameters.STRAGGLER_PERCENT:g}")


def _step_times(hosts: int, modes: dict[str, str], repeats: int) -> dict[str, list[tuple[float, Run]]]:
    """Return the seconds of a step on rank 0, and the run, for each repetition of each mode.

    The last rank is slower in the mode with the name ``slow``.
    """
    with silence():
        cluster = Cluster.start(hosts, name=f"net{hosts}", ranks=1, backend="torch", progress=quiet)
    with cluster:
        found: dict[str, list[tuple[float, Run]]] = {name: [] for name in modes}
        for _ in range(repeats):
            for name, sync in modes.items():
                steps = parameters.SLOW_STEPS if name in parameters.EACH_STEP and hosts > 1 else parameters.STEPS
                first = parameters.FIRST_STEPS_OF_AUTO if name == "auto" else parameters.FIRST_STEPS
                straggler = parameters.STRAGGLER if name == "slow" else 1
                run = cluster.train(_code(sync, first, steps, straggler), name=name)
                found[name].append((float(run.results[0]), run))
        return found


def _code(sync: str, first: int, steps: int, straggler: int) -> str:
    names = {
        "COMPUTE": parameters.COMPUTE_SECONDS,
        "FIRST_STEPS": first,
        "STEPS": steps,
        "STRAGGLER": straggler,
    }
    lines = [f"{name} = {value}" for name, value in names.items()]
    return "\n".join([*lines, "import farandole as fd", f"SYNC = {sync}", CELL])
