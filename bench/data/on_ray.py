"""The job on Ray: Ray Data, TorchTrainer, and map_batches with a class for actors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import ray
from ray.data import DataContext
from ray.data.aggregate import Mean, Std, ValueCounter
from ray.data.collate_fn import NumpyBatchCollateFn
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from bench.data.job import BATCH, CORES, FILES, FLOWS, INFERENCE_BATCH, INPUTS, Job, run
from bench.data.rows import Predictor, decode, features, with_price

SHUFFLED = 8
"""The number of batches from which a process takes the rows of the next one at random."""


def main(job: Job) -> None:
    """Do the job."""
    ray.init(num_cpus=CORES, include_dashboard=False)
    # The newer reader joins small files into one block, which a single process would compute.
    DataContext.get_current().use_datasource_v2 = False
    job.lap("start")
    for flow in FLOWS:
        rows = PREPARE[flow](job.source(flow)).materialize()
        job.lap(f"prepare {flow}")
        train(job, flow, rows)
        job.lap(f"train {flow}")
        infer(job, flow, rows)
        job.lap(f"infer {flow}")
    ray.shutdown()


def prepare_clicks(source: str) -> ray.data.Dataset:
    """Return the features of clicks."""
    clicks = (
        ray.data.read_parquet(source, override_num_blocks=FILES)
        .map_batches(with_price, batch_format="pandas")
        .materialize()
    )
    found = clicks.aggregate(Mean("log_price"), Std("log_price"), ValueCounter("item"))
    items = found["value_counter(item)"]
    numbers = {"mean": found["mean(log_price)"], "std": found["std(log_price)"]}
    counts = pd.Series(items["counts"], index=items["values"])
    return clicks.map_batches(features, batch_format="pandas", fn_kwargs={**numbers, "counts": counts})


def prepare_images(source: str) -> ray.data.Dataset:
    """Return the pixels of images."""
    return ray.data.read_parquet(source, override_num_blocks=FILES).map_batches(decode, batch_format="pandas")


PREPARE = {"clicks": prepare_clicks, "images": prepare_images}


def train(job: Job, flow: str, rows: ray.data.Dataset) -> None:
    """Train in two processes, which get their batches from the shared memory of Ray."""
    trainer = TorchTrainer(
        train_there,
        train_loop_config={"flow": flow, "path": job.model(flow)},
        scaling_config=ScalingConfig(num_workers=CORES),
        run_config=RunConfig(storage_path=str(job.work / "runs")),
        datasets={"train": rows},
    )
    trainer.fit()


class Collate(NumpyBatchCollateFn):
    """Makes tensors of the columns of a batch."""

    def __init__(self, flow: str) -> None:
        self._names = [*INPUTS[flow], "label"]

    def __call__(self, batch: dict[str, np.ndarray]) -> Any:
        """Return the tensors."""
        from bench.data.training import tensors

        return tensors(batch, self._names)


def train_there(config: dict[str, Any]) -> None:
    """Train as one process of the group."""
    from bench.data.training import fit, new_model, optimizer_of, save

    flow = config["flow"]
    model = ray.train.torch.prepare_model(new_model(flow))
    batches = partial(
        ray.train.get_dataset_shard("train").iter_torch_batches,
        batch_size=BATCH[flow],
        local_shuffle_buffer_size=SHUFFLED * BATCH[flow],
        collate_fn=Collate(flow),
    )
    fit(model, optimizer_of(model), batches)
    if ray.train.get_context().get_world_rank() == 0:
        save(model, config["path"])


def infer(job: Job, flow: str, rows: ray.data.Dataset) -> None:
    """Write the predictions for all prepared rows."""
    found = rows.map_batches(
        Predictor,
        fn_constructor_args=(flow, job.model(flow)),
        batch_size=INFERENCE_BATCH[flow],
        compute=ray.data.ActorPoolStrategy(size=CORES),
    )
    found.write_parquet(job.output(flow))


if __name__ == "__main__":
    run(main)
