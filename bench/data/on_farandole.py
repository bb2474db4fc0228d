"""The job on Farandole: Dask on two ranks, `fd.dataset` and `fd.prepare`, and `map_batches`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import farandole as fd

from bench.data.frames import PREPARE
from bench.data.job import BATCH, CORES, FLOWS, INFERENCE_BATCH, Job, run
from bench.data.rows import Predictor

if TYPE_CHECKING:
    from distributed import Worker

PART_ROWS = {"clicks": 65_536, "images": 512}
TRAINING = """
import farandole as fd
from bench.data.training import fit, new_model, optimizer_of, save
from torch.utils.data import DataLoader

model = new_model(flow)
loader = DataLoader(data, batch_size=batch_size, shuffle=True)
model, optimizer, loader = fd.prepare(model, optimizer_of(model), loader, batch_size="per_rank")
fit(model, optimizer, lambda: loader)
if fd.rank() == 0:
    save(model, path)
"""


def main(job: Job) -> None:
    """Do the job."""
    with fd.Cluster.start(local=True, ranks=CORES, backend="torch") as cluster:
        client = cluster.dask()
        job.lap("start")
        for flow in FLOWS:
            data = prepare(job, flow)
            job.lap(f"prepare {flow}")
            cluster.push({"data": data, "flow": flow, "batch_size": BATCH[flow], "path": job.model(flow)})
            cluster.train(TRAINING)
            job.lap(f"train {flow}")
            infer(cluster, job, flow)
            job.lap(f"infer {flow}")
        job.figures["copied_bytes"] = sum(client.run(sent_bytes).values())
        job.figures["prepared_bytes"] = sum(size_of(job.prepared(flow)) for flow in FLOWS)


def prepare(job: Job, flow: str) -> Any:
    """Return the prepared rows, which the ranks write once and then read from memory maps."""
    transform = image_item if flow == "images" else None
    return fd.dataset(PREPARE[flow](job.source(flow)), transform=transform, folder=job.prepared(flow))


def image_item(row: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of an image."""
    from bench.data.training import tensors

    return {"pixels": tensors({"pixels": [row["pixels"]]}, ["pixels"])["pixels"][0], "label": row["label"]}


def infer(cluster: fd.Cluster, job: Job, flow: str) -> None:
    """Write the predictions for all prepared rows."""
    stage = partial(Predictor, flow, job.model(flow))
    size, part_rows = INFERENCE_BATCH[flow], PART_ROWS[flow]
    cluster.map_batches([stage], job.prepared(flow), to=job.output(flow), batch_size=size, part_rows=part_rows)


def size_of(folder: str) -> int:
    """Return the size of the files in a folder."""
    return sum(file.stat().st_size for file in Path(folder).iterdir())


def sent_bytes(dask_worker: Worker) -> int:
    """Return the size of the data that a Dask worker has sent to other ranks and to the driver."""
    return dask_worker.transfer_outgoing_bytes_total


if __name__ == "__main__":
    run(main)
