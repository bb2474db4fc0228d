"""What is computed from rows in pandas, on all engines. This module imports torch only where a model is used."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from bench.data.job import CATEGORIES, CROPPED, INFERENCE_BATCH, INPUTS, RESIZED

CODES = {name: code for code, name in enumerate(CATEGORIES)}
FEATURE_TYPES = {
    "id": "int64",
    "price": "float32",
    "popularity": "float32",
    "hour_sin": "float32",
    "hour_cos": "float32",
    "category": "int64",
    "item": "int64",
    "label": "int64",
}
PIXEL_TYPES = {"id": "int64", "label": "int64", "pixels": "object"}
PREDICTION_TYPES = {
    "clicks": {"id": "int64", "predicted": "int64", "score": "float32"},
    "images": {"id": "int64", "predicted": "int64", "features": "object"},
}


def with_price(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have a price, with its logarithm."""
    kept = frame.dropna(subset=["price"])
    return kept.assign(log_price=np.log(kept["price"]))


def features(frame: pd.DataFrame, mean: float, std: float, counts: pd.Series[int]) -> pd.DataFrame:
    """Return the features of clicks.

    Args:
        frame: rows that have a price, with its logarithm.
        mean: the mean of the logarithms of all prices.
        std: their standard deviation.
        counts: the number of rows of each item.
    """
    angle = 2 * np.pi * frame["hour"] / 24
    columns = {
        "id": frame["id"],
        "price": (frame["log_price"] - mean) / std,
        "popularity": np.log1p(frame["item"].map(counts)),
        "hour_sin": np.sin(angle),
        "hour_cos": np.cos(angle),
        "category": frame["category"].map(CODES),
        "item": frame["item"],
        "label": frame["label"],
    }
    return pd.DataFrame(columns).astype(FEATURE_TYPES)


def decode(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the pixels of images."""
    pixels = pd.Series([pixels_of(data) for data in frame["image"]], index=frame.index, dtype="object")
    return pd.DataFrame({"id": frame["id"], "label": frame["label"], "pixels": pixels})


def pixels_of(data: bytes) -> bytes:
    """Return the pixels of the middle of an image, as bytes of the shape [3, `CROPPED`, `CROPPED`]."""
    edge = (RESIZED - CROPPED) // 2
    with Image.open(io.BytesIO(data)) as image:
        resized = image.convert("RGB").resize((RESIZED, RESIZED))
    cropped = resized.crop((edge, edge, edge + CROPPED, edge + CROPPED))
    return np.asarray(cropped).transpose(2, 0, 1).tobytes()


class Predictor:
    """Computes predictions with the model of a flow. A batch is a dict with an array or a list for each column."""

    def __init__(self, flow: str, path: str) -> None:
        from bench.data.training import load

        self._flow = flow
        self._model = load(flow, path)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the predictions for a batch."""
        from bench.data.training import predictions, tensors

        return {"id": batch["id"], **predictions(self._model, tensors(batch, INPUTS[self._flow]))}


def predict(frame: pd.DataFrame, flow: str, path: str) -> pd.DataFrame:
    """Return the predictions for a data frame, which are computed in batches."""
    size = INFERENCE_BATCH[flow]
    found = [_predicted(frame.iloc[start : start + size], flow, path) for start in range(0, len(frame), size)]
    return pd.concat(found, ignore_index=True)


def _predicted(frame: pd.DataFrame, flow: str, path: str) -> pd.DataFrame:
    batch = {name: frame[name].to_numpy() for name in frame.columns}
    found = _predictor(flow, path)(batch)
    # A column of a data frame has one dimension. Lists of numbers would take much longer than an array.
    columns = {name: values if values.ndim == 1 else list(values) for name, values in found.items()}
    return pd.DataFrame(columns).astype(PREDICTION_TYPES[flow])


@lru_cache
def _predictor(flow: str, path: str) -> Predictor:
    """Return the predictor of this process, which loads a model once."""
    return Predictor(flow, path)
