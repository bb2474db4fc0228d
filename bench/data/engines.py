"""Runs the scripts of the engines in processes of their own, and checks what they have computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.data.job import CORES, FLOWS, RESULT, output_of
from bench.site import THREADS
from spawner_config.settings import ROOT

COMPETITORS = ROOT / ".venv-bench-data" / "bin" / "python"
"""The Python with PySpark and Ray."""
PYTHONS = {"farandole": sys.executable, "dask": sys.executable, "spark": str(COMPETITORS), "ray": str(COMPETITORS)}
"""The Python of each engine."""
SCRIPT_SECONDS = 900
LEARNED = {"clicks": 0.7, "images": 0.9}
"""The accuracy above which a training counts. All engines reach 0.745 and 1. A guess reaches 0.5 and 0.1."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The seconds of the phases of a script, and its other figures."""

    seconds: Mapping[str, float]
    figures: Mapping[str, float]

    @property
    def total(self) -> float:
        """The seconds from the start of the process to the end of the last phase."""
        return sum(self.seconds.values())


@contextmanager
def two_cores() -> Iterator[None]:
    """Let this thread, and the processes that it starts, use only the first `CORES` cores."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:CORES])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def run_engine(engine: str, source: Path, work: Path, *, learned: Mapping[str, float] = LEARNED) -> Outcome:
    """Let an engine do the job in the new folder ``work``. Check its predictions, as described for `check`."""
    outcome = run_script(f"on_{engine}", source, work, python=PYTHONS[engine])
    for flow in FLOWS:
        check(engine, flow, source, work, learned[flow])
    return outcome


def run_script(script: str, source: Path, work: Path, *, python: str = sys.executable) -> Outcome:
    """Run a module of this folder as a script. If it fails, print its output and raise CalledProcessError."""
    work.mkdir(exist_ok=True)
    command = [python, "-m", f"bench.data.{script}", str(source), str(work)]
    with (work / "log").open("w+", encoding="utf-8") as log:
        try:
            subprocess.run(
                [*command, repr(time.monotonic())],
                cwd=work,
                env=_environment(work),
                stdout=log,
                stderr=log,
                check=True,
                timeout=SCRIPT_SECONDS,
            )
        except subprocess.SubprocessError:
            log.seek(0)
            print(log.read(), file=sys.stderr, flush=True)
            raise
    return Outcome(**json.loads((work / RESULT).read_text(encoding="utf-8")))


def import_path() -> dict[str, str]:
    """Return the environment variable with which processes import the modules of this repository."""
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def _environment(work: Path) -> dict[str, str]:
    ours = {**import_path(), "FARANDOLE_RUNS": str(work / "runs")}
    spark = {"PYSPARK_PYTHON": str(COMPETITORS), "SPARK_LOCAL_DIRS": str(work), "SPARK_LOCAL_IP": "127.0.0.1"}
    ray = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(work)}
    return {**os.environ, **THREADS, **ours, **spark, **ray}


def check(engine: str, flow: str, source: Path, work: Path, learned: float) -> None:
    """Check that there is one prediction for each row, and that more than a fraction of them is right.

    Raises AssertionError otherwise, because the engine has not done the same job as the others.
    """
    rows = pq.read_table(source / flow)
    if flow == "clicks":
        rows = rows.filter(pc.is_valid(rows["price"]))
    found = pq.read_table(output_of(work, flow), columns=["id", "predicted"])
    ids, predicted = _by_id(found, "predicted")
    wanted, labels = _by_id(rows, "label")
    assert np.array_equal(ids, wanted), f"{engine} has {len(ids)} predictions for the {len(wanted)} rows of {flow}"
    accuracy = float(np.mean(predicted == labels))
    assert accuracy > learned, f"{engine} predicts {accuracy:.1%} of {flow} correctly, which is less than {learned:.1%}"


def _by_id(table: pa.Table, column: str) -> tuple[np.ndarray, np.ndarray]:
    ordered = table.sort_by("id")
    return ordered["id"].to_numpy(), ordered[column].to_numpy()
