"""Compares `map_batches` on ranks that are running with the same model in a plain loop on the same cores.

Each side is alone on the cores, and has computed a few images before. `IMAGES` is so large that both take many seconds,
because the start of a job on ranks takes a fraction of a second. The loop has the allocator settings of ranks, without
which it takes about a third more time.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from farandole import Cluster
from farandole.runs.store import RunStore
from farandole.server.worker.__main__ import ALLOCATOR

from bench.data.bare import FLOW, SIZE
from bench.data.engines import import_path, run_script
from bench.data.inputs import pixels_maker, write_files
from bench.data.job import CORES, Job
from bench.data.rows import Predictor
from bench.record import Record, ratio_of_pairs
from bench.site import THREADS, environment, quiet

PART_IMAGES = 4096
IMAGES = 30 * PART_IMAGES
FEW, FEW_IMAGES = "few", CORES * PART_IMAGES
"""The name and the size of the source that the ranks compute first. It has a part for each rank."""
RATIO = 0.9


def measure(folder: Path, repeats: int, *, images: int = IMAGES) -> Record:
    """Return the record inference_ratio_bare. The side that computes first alternates."""
    job, pairs = _job(folder, images), []
    with environment({**THREADS, **ALLOCATOR, **import_path()}):
        for number in range(repeats):
            if number % 2:
                theirs, ours = _in_loops(job), _on_ranks(job)
            else:
                ours, theirs = _on_ranks(job), _in_loops(job)
            pairs.append((images / ours, images / theirs))
    note = f"images a second of map_batches : of a loop in {CORES} processes"
    return ratio_of_pairs("inference_ratio_bare", pairs, limit=f">= {RATIO:g}", note=note)


def _job(folder: Path, images: int) -> Job:
    """Return a job with images and a model that is not trained."""
    from bench.data.training import new_model, save

    source, work = folder / "noise", folder / "inference"
    write_files(source / FLOW, images, pixels_maker())
    write_files(source / FEW, FEW_IMAGES, pixels_maker())
    work.mkdir()
    job = Job(source, work, time.monotonic())
    save(new_model(FLOW), job.model(FLOW))
    return job


def _on_ranks(job: Job) -> float:
    """Return the seconds in which ranks compute all images."""
    stage, store = partial(Predictor, FLOW, job.model(FLOW)), RunStore(job.work / "runs")
    with Cluster.start(local=True, ranks=CORES, backend="torch", store=store, progress=quiet) as cluster:
        compute = partial(cluster.map_batches, [stage], batch_size=SIZE, part_rows=PART_IMAGES)
        compute(job.source(FEW), to=job.output(FEW))  # starts Dask, and imports torch on the ranks
        begun = time.monotonic()
        compute(job.source(FLOW), to=job.output(FLOW))
        seconds = time.monotonic() - begun
    for source in (FEW, FLOW):
        _check(job, source)
    return seconds


def _in_loops(job: Job) -> float:
    """Return the seconds that plain loops take for all images."""
    seconds = run_script("bare", Path(job.source(FLOW)).parent, job.work).seconds["infer"]
    _check(job, FLOW)
    return seconds


def _check(job: Job, source: str) -> None:
    """Check that all images of a source were computed, and remove the output."""
    found, wanted = (_rows(folder) for folder in (job.output(source), job.source(source)))
    assert found == wanted, f"{found} of {wanted} images were computed"
    shutil.rmtree(job.output(source))


def _rows(folder: str) -> int:
    return sum(pq.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet"))
