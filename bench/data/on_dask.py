"""The job on plain Dask: a LocalCluster of two workers, in which torch trains as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pyarrow as pa
from distributed import Client, LocalCluster

from bench.data.frames import PREPARE
from bench.data.job import CORES, FLOWS, Job, run
from bench.data.rows import PREDICTION_TYPES, predict

SCHEMAS = {
    "pixels": pa.schema({"id": pa.int64(), "label": pa.int64(), "pixels": pa.binary()}),
    "features": pa.schema({"id": pa.int64(), "predicted": pa.int64(), "features": pa.list_(pa.float32())}),
}
"""The types of frames with a column of Python objects, which Dask cannot infer."""


def main(job: Job) -> None:
    """Do the job."""
    workers = LocalCluster(n_workers=CORES, threads_per_worker=1, dashboard_address=":0")
    with workers as cluster, Client(cluster) as client:
        job.lap("start")
        for flow in FLOWS:
            write(PREPARE[flow](job.source(flow)), job.prepared(flow))
            job.lap(f"prepare {flow}")
            train(client, job, flow)
            job.lap(f"train {flow}")
            infer(job, flow)
            job.lap(f"infer {flow}")


def write(frame: dd.DataFrame, folder: str) -> None:
    """Write a frame as Parquet files."""
    frame.to_parquet(folder, write_index=False, schema=SCHEMAS.get(frame.columns[-1], "infer"))


def train(client: Client, job: Job, flow: str) -> None:
    """Train in the processes of all Dask workers."""
    addresses = list(client.scheduler_info()["workers"])
    meeting = Path(job.model(flow)).with_suffix(".meeting")
    group = {"init_method": meeting.as_uri(), "world_size": len(addresses)}
    futures = [
        client.submit(train_there, flow, job, {**group, "rank": rank}, workers=[address], pure=False)
        for rank, address in enumerate(addresses)
    ]
    client.gather(futures)


def train_there(flow: str, job: Job, group: dict[str, Any]) -> None:
    """Train as one process of the group."""
    from bench.data.training import train

    train(flow, job.prepared(flow), job.model(flow), **group)


def infer(job: Job, flow: str) -> None:
    """Write the predictions for all prepared rows."""
    rows = dd.read_parquet(job.prepared(flow))
    found = rows.map_partitions(predict, flow, job.model(flow), meta=PREDICTION_TYPES[flow])
    write(found, job.output(flow))


if __name__ == "__main__":
    run(main)
