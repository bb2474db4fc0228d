"""Makes up the rows of both flows from a seed. The labels can be learned from the rows."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from bench.data.job import CATEGORIES, CLASSES, CROPPED, FILES, ITEMS, JPEG, ROWS

SEED = 22
MISSING = 0.01
"""The fraction of clicks without a price."""
CELLS = 6
"""The width and the height of the pattern of a class, in squares of one colour."""
SHIFT = 8
"""The most pixels by which the pattern of an image is moved."""


def write_inputs(folder: Path, rows: dict[str, int] = ROWS) -> None:
    """Write the Parquet files of both flows into folders with their names."""
    for flow, table in (("clicks", clicks_maker()), ("images", images_maker())):
        write_files(folder / flow, rows[flow], table)


def write_files(folder: Path, rows: int, table: Callable[[int, int], pa.Table]) -> None:
    """Write rows into `FILES` files. ``table`` returns the rows from a number to before another one."""
    folder.mkdir(parents=True)
    edges = [rows * part // FILES for part in range(FILES + 1)]
    for part, (start, stop) in enumerate(pairwise(edges)):
        pq.write_table(table(start, stop), folder / f"part-{part}.parquet")


def clicks_maker() -> Callable[[int, int], pa.Table]:
    """Return a function that makes clicks."""
    generator = np.random.default_rng(SEED)
    liked = generator.normal(0, 1, ITEMS)

    def table(start: int, stop: int) -> pa.Table:
        count = stop - start
        # Some items are seen much more often than others.
        item = (ITEMS * generator.random(count) ** 2).astype(np.int64)
        hour, price = generator.integers(0, 24, count), generator.lognormal(3, 1, count)
        likely = liked[item] + np.sin(2 * np.pi * hour / 24) - (np.log(price) - 3)
        return pa.table(
            {
                "id": np.arange(start, stop),
                "item": item,
                "category": np.array(CATEGORIES)[item % len(CATEGORIES)],
                "hour": hour,
                "price": pa.array(price, mask=generator.random(count) < MISSING),
                "label": (generator.random(count) < 1 / (1 + np.exp(-likely))).astype(np.int64),
            }
        )

    return table


def images_maker() -> Callable[[int, int], pa.Table]:
    """Return a function that makes JPEG images. Each class has a pattern, and each image has noise."""
    generator = np.random.default_rng(SEED)
    patterns = generator.integers(0, 256, (CLASSES, CELLS, CELLS, 3))
    large = patterns.repeat(JPEG // CELLS, axis=1).repeat(JPEG // CELLS, axis=2)

    def image(label: int) -> bytes:
        moved = np.roll(large[label], tuple(generator.integers(-SHIFT, SHIFT + 1, 2)), axis=(0, 1))
        noisy = moved + generator.normal(0, 40, moved.shape)
        file = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, "JPEG")
        return file.getvalue()

    def table(start: int, stop: int) -> pa.Table:
        labels = generator.integers(0, CLASSES, stop - start)
        images = pa.array([image(label) for label in labels], pa.binary())
        return pa.table({"id": np.arange(start, stop), "label": labels, "image": images})

    return table


def pixels_maker() -> Callable[[int, int], pa.Table]:
    """Return a function that makes prepared images of noise, for a job that only infers."""
    generator = np.random.default_rng(SEED)

    def table(start: int, stop: int) -> pa.Table:
        pixels = [generator.bytes(3 * CROPPED * CROPPED) for _ in range(start, stop)]
        return pa.table({"id": np.arange(start, stop), "pixels": pa.array(pixels, pa.binary())})

    return table
