"""The preparation of both flows with Dask, which Farandole and plain Dask share."""

from __future__ import annotations

import dask
import dask.dataframe as dd

from bench.data.rows import FEATURE_TYPES, PIXEL_TYPES, decode, features, with_price


def prepare_clicks(source: str) -> dd.DataFrame:
    """Return the features of clicks. Their prices and items are counted at once."""
    clicks = dd.read_parquet(source).map_partitions(with_price).persist()
    price = clicks["log_price"]
    mean, std, counts = dask.compute(price.mean(), price.std(), clicks["item"].value_counts(split_out=1))
    return clicks.map_partitions(features, mean, std, counts, meta=FEATURE_TYPES)


def prepare_images(source: str) -> dd.DataFrame:
    """Return the pixels of images."""
    return dd.read_parquet(source).map_partitions(decode, meta=PIXEL_TYPES)


PREPARE = {"clicks": prepare_clicks, "images": prepare_images}
