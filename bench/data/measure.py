"""Compares the engines: the time of the whole job, of an inference, and of the start of the engine.

All processes have the same two cores, and one thread each. In each round, all engines do the job, one after another,
and only times of the same round are compared. A job with few rows comes first and warms up the file cache.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from farandole.driver.table import aligned

from bench.data.engines import LEARNED, PYTHONS, Outcome, run_engine, run_script, two_cores
from bench.data.inference import measure as inference
from bench.data.inputs import write_inputs
from bench.data.job import FLOWS, PHASES, ROWS
from bench.record import Record, median_of, ratio_of_pairs

WARM_UP = {"clicks": 20_000, "images": 200}
START_SECONDS = 3
SPARK, RAY = 0.6, 1.0
LINES = ("java", "start", *(f"{phase} {flow}" for flow in FLOWS for phase in PHASES))

Round = Mapping[str, Outcome]
"""The outcome of each engine."""


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records of the bench, and print a table of the phases of each engine."""
    with tempfile.TemporaryDirectory(prefix="farandole-", ignore_cleanup_errors=True) as name, two_cores():
        folder = Path(name)
        yield _start(folder, repeats)
        write_inputs(folder / "few", WARM_UP)
        write_inputs(folder / "many", ROWS)
        compare(folder / "few", folder / "warm-up", 1, learned=dict.fromkeys(FLOWS, 0.0))
        rounds = compare(folder / "many", folder, repeats)
        print("\n" + table(rounds), end="\n\n", flush=True)
        yield from totals(rounds)
        yield inference(folder, repeats)


def _start(folder: Path, repeats: int) -> Record:
    starts = []
    for number in range(repeats):
        with _work(folder, f"start-{number}") as work:
            starts.append(run_script("engine_start", folder, work).seconds["engine"])
    note = "Dask on four ranks that are running"
    return median_of("data_engine_start_seconds", starts, "s", limit=f"<= {START_SECONDS}", note=note)


def compare(
    source: Path,
    folder: Path,
    repeats: int,
    *,
    engines: Sequence[str] = tuple(PYTHONS),
    learned: Mapping[str, float] = LEARNED,
) -> list[Round]:
    """Let the engines do the job ``repeats`` times. The engine that begins changes from round to round."""
    rounds: list[Round] = []
    for number in range(repeats):
        first = number % len(engines)
        found = {}
        for engine in (*engines[first:], *engines[:first]):
            with _work(folder, f"{engine}-{number}") as work:
                found[engine] = run_engine(engine, source, work, learned=learned)
        rounds.append(found)
    return rounds


@contextmanager
def _work(folder: Path, name: str) -> Iterator[Path]:
    """Yield a new folder. Its path is short, because those of Ray's sockets in it have at most 107 bytes."""
    work = folder / name
    work.mkdir(parents=True)
    try:
        yield work
    finally:
        # Processes of an engine may still end, and write into it.
        shutil.rmtree(work, ignore_errors=True)


def table(rounds: Sequence[Round]) -> str:
    """Return the median seconds of each phase for each engine."""
    engines = list(rounds[0])
    lines = [("seconds", *engines)]
    for phase in LINES:
        found = {name: [one[name].seconds[phase] for one in rounds if phase in one[name].seconds] for name in engines}
        lines.append((phase, *(f"{median(runs):.1f}" if runs else "" for runs in found.values())))
    lines.append(("total", *(f"{median(one[name].total for one in rounds):.1f}" for name in engines)))
    return "\n".join(aligned(lines))


def totals(rounds: Sequence[Round]) -> Iterator[Record]:
    """Yield the ratios of the total times, the time in which Java starts, and the bytes that Dask has copied.

    The start of Java does not count. PySpark's note has the ratio with it.
    """
    java = [one["spark"].seconds["java"] for one in rounds]
    with_java = median(one["farandole"].total / one["spark"].total for one in rounds)
    yield _ratio("spark", rounds, f"<= {SPARK:g}", f"s; {with_java:.2f} with the start of Java")
    yield _ratio("ray", rounds, f"<= {RAY:g}", "s")
    yield _ratio("dask", rounds, "", "s")
    yield median_of("data_java_start_seconds", java, "s", note="is not in data_total_ratio_spark")
    yield _copied([one["farandole"].figures for one in rounds])


def _ratio(engine: str, rounds: Sequence[Round], limit: str, note: str) -> Record:
    pairs = [(one["farandole"].total, one[engine].total - one[engine].seconds.get("java", 0.0)) for one in rounds]
    return ratio_of_pairs(f"data_total_ratio_{engine}", pairs, limit=limit, note=note)


def _copied(figures: Sequence[Mapping[str, float]]) -> Record:
    megabytes = median(one["prepared_bytes"] for one in figures) / 1e6
    note = f"from ranks to other ranks and to the driver; {megabytes:.0f} MB of prepared rows are mapped, not copied"
    return median_of("data_copied_bytes", (one["copied_bytes"] for one in figures), "bytes", note=note)
