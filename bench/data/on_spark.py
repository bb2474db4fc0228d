"""The job on PySpark: data frames, TorchDistributor and mapInPandas, with the master ``local[2]``."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name in Spark's documentation

from bench.data.job import CATEGORIES, CORES, FLOWS, INFERENCE_BATCH, Job, run
from bench.data.rows import decode, predict

SETTINGS = {
    "spark.master": f"local[{CORES}]",
    "spark.driver.memory": "4g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": max(INFERENCE_BATCH.values()),
    # Spark's guide asks for two or three tasks a core. The default is 200.
    "spark.sql.shuffle.partitions": 2 * CORES,
    "spark.ui.enabled": "false",
}
PIXELS = "id long, label long, pixels binary"
PREDICTIONS = {
    "clicks": "id long, predicted long, score float",
    "images": "id long, predicted long, features array<float>",
}


def main(job: Job) -> None:
    """Do the job."""
    conf = SparkConf().setAll([(name, str(value)) for name, value in SETTINGS.items()])
    job.lap("start")  # the imports
    gateway = launch_gateway(conf)
    job.lap("java")
    spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
    job.lap("start")
    for flow in FLOWS:
        PREPARE[flow](spark.read.parquet(job.source(flow))).write.parquet(job.prepared(flow))
        job.lap(f"prepare {flow}")
        distributor = TorchDistributor(num_processes=CORES, local_mode=True, use_gpu=False)
        distributor.run(train_there, flow, job.prepared(flow), job.model(flow))
        job.lap(f"train {flow}")
        infer(spark, job, flow)
        job.lap(f"infer {flow}")
    spark.stop()


def prepare_clicks(source: DataFrame) -> DataFrame:
    """Return the features of clicks."""
    clicks = source.dropna(subset=["price"]).withColumn("log_price", F.log("price")).cache()
    mean, std = clicks.agg(F.mean("log_price"), F.stddev("log_price")).first()
    counts = clicks.groupBy("item").count()
    angle = 2 * math.pi * F.col("hour") / 24
    code = F.array_position(F.array(*map(F.lit, CATEGORIES)), F.col("category")) - 1
    return clicks.join(F.broadcast(counts), "item").select(
        "id",
        ((F.col("log_price") - mean) / std).cast("float").alias("price"),
        F.log1p("count").cast("float").alias("popularity"),
        F.sin(angle).cast("float").alias("hour_sin"),
        F.cos(angle).cast("float").alias("hour_cos"),
        code.cast("long").alias("category"),
        "item",
        "label",
    )


def prepare_images(source: DataFrame) -> DataFrame:
    """Return the pixels of images."""

    def decoded(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from map(decode, frames)

    return source.mapInPandas(decoded, PIXELS)


PREPARE = {"clicks": prepare_clicks, "images": prepare_images}


def train_there(flow: str, prepared: str, path: str) -> None:
    """Train as one process of torchrun."""
    from bench.data.training import train

    train(flow, prepared, path)


def infer(spark: SparkSession, job: Job, flow: str) -> None:
    """Write the predictions for all prepared rows."""
    path = job.model(flow)

    def predicted(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield predict(frame, flow, path)

    spark.read.parquet(job.prepared(flow)).mapInPandas(predicted, PREDICTIONS[flow]).write.parquet(job.output(flow))


if __name__ == "__main__":
    run(main)
