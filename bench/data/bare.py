"""The model in a plain loop, in as many processes as there are ranks. Each reads its own files, and writes one file.

The processes begin at the same time, after they have loaded the model.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data.job import CORES, INFERENCE_BATCH, Job, run

FLOW = "images"
SIZE = INFERENCE_BATCH[FLOW]
LOAD_SECONDS = 60
INFER_SECONDS = 300


def main(job: Job) -> None:
    """Compute all rows, and record the seconds from the beginning of the loops to the end of the last one."""
    context = multiprocessing.get_context("spawn")
    barrier, times = context.Barrier(CORES), context.Queue()
    Path(job.output(FLOW)).mkdir()
    processes = [context.Process(target=infer, args=(job, rank, barrier, times)) for rank in range(CORES)]
    for process in processes:
        process.start()
    found = [times.get(timeout=LOAD_SECONDS + INFER_SECONDS) for _ in processes]
    for process in processes:
        process.join()
    job.seconds["infer"] = max(end for _, end in found) - min(begun for begun, _ in found)


def infer(job: Job, rank: int, barrier: Barrier, times: Queue[tuple[float, float]]) -> None:
    """Compute the rows of a share of the files, and send when that began and ended."""
    from bench.data.rows import Predictor

    # Each rank has a session, too. If other programs run, Linux divides the cores among sessions.
    os.setsid()
    predictor = Predictor(FLOW, job.model(FLOW))
    files = sorted(Path(job.source(FLOW)).glob("*.parquet"))[rank::CORES]
    _predicted(predictor, next(pq.ParquetFile(files[0]).iter_batches(SIZE)))
    barrier.wait(LOAD_SECONDS)
    begun = time.monotonic()
    batches = (batch for file in files for batch in pq.ParquetFile(file).iter_batches(SIZE))
    table = pa.concat_tables([_predicted(predictor, batch) for batch in batches])
    pq.write_table(table, f"{job.output(FLOW)}/{rank}.parquet", compression="zstd")
    times.put((begun, time.monotonic()))


def _predicted(predictor: Any, batch: pa.RecordBatch) -> pa.Table:
    found = predictor({"id": batch["id"].to_numpy(), "pixels": batch["pixels"].to_pylist()})
    features: np.ndarray[Any, Any] = found.pop("features")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), features.shape[1])
    return pa.table({**{name: pa.array(values) for name, values in found.items()}, "features": lists})


if __name__ == "__main__":
    run(main)
