"""Compares `map_batches` on ranks that are running with the same model in a plain loop on the same cores."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from farandole import Cluster
from farandole.runs.store import RunStore

from bench.data.bare import FLOW, SIZE
from bench.data.engines import import_path, run_script
from bench.data.inputs import pixels_maker, write_files
from bench.data.job import CORES, Job
from bench.data.rows import Predictor
from bench.record import Record, ratio_of_pairs
from bench.site import THREADS, environment, quiet

IMAGES = 60_000
RATIO = 0.9


def measure(folder: Path, repeats: int, *, images: int = IMAGES) -> Record:
    """Return the record inference_ratio_bare. The side that computes first alternates."""
    job = _job(folder, images)
    store, pairs = RunStore(job.work / "runs"), []
    with (
        environment({**THREADS, **import_path()}),
        Cluster.start(local=True, ranks=CORES, backend="torch", store=store, progress=quiet) as cluster,
    ):
        _on_ranks(cluster, job)  # starts Dask, and imports torch on the ranks
        for number in range(repeats):
            if number % 2:
                theirs, ours = _in_loops(job), _on_ranks(cluster, job)
            else:
                ours, theirs = _on_ranks(cluster, job), _in_loops(job)
            pairs.append((images / ours, images / theirs))
    note = f"images a second of map_batches : of a loop in {CORES} processes"
    return ratio_of_pairs("inference_ratio_bare", pairs, limit=f">= {RATIO:g}", note=note)


def _job(folder: Path, images: int) -> Job:
    """Return a job with images and a model that is not trained."""
    from bench.data.training import new_model, save

    source, work = folder / "noise", folder / "inference"
    write_files(source / FLOW, images, pixels_maker())
    work.mkdir()
    job = Job(source, work, time.monotonic())
    save(new_model(FLOW), job.model(FLOW))
    return job


def _on_ranks(cluster: Cluster, job: Job) -> float:
    """Return the seconds in which the ranks compute all images."""
    stage = partial(Predictor, FLOW, job.model(FLOW))
    begun = time.monotonic()
    cluster.map_batches([stage], job.source(FLOW), to=job.output(FLOW), batch_size=SIZE)
    return _checked(job, time.monotonic() - begun)


def _in_loops(job: Job) -> float:
    """Return the seconds in which loops compute all images."""
    return _checked(job, run_script("bare", Path(job.source(FLOW)).parent, job.work).seconds["infer"])


def _checked(job: Job, seconds: float) -> float:
    """Check that all images were computed, and remove the output."""
    found, wanted = (_rows(folder) for folder in (job.output(FLOW), job.source(FLOW)))
    assert found == wanted, f"{found} of {wanted} images were computed"
    shutil.rmtree(job.output(FLOW))
    return seconds


def _rows(folder: str) -> int:
    return sum(pq.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet"))
