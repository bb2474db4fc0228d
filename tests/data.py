"""Small data sets in the layouts of real ones. With FARANDOLE_DATA, tests read the folder that it names instead."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGES = {"train": 30, "valid": 10, "test": 10}
"""The number of images of each class, by folder."""


def cinic10(folder: Path) -> Path:
    """Return a folder in the layout of CINIC-10.

    Without FARANDOLE_DATA it is created below ``folder``: images of 32 by 32 pixels from a seed, in which each class
    has its own colour and stripes.
    """
    if given := os.environ.get("FARANDOLE_DATA"):
        return Path(given) / "cinic10-mini"
    random = np.random.default_rng(0)
    for split, count in IMAGES.items():
        for label, name in enumerate(CLASSES):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(_image(label, random)).save(place / f"seed-{split}-{number:04}.png")
    return folder


def first_images(folder: Path, per_class: int) -> list[Path]:
    """Return the first images of each class in a folder in the layout of CINIC-10, which the notebooks read."""
    return [file for place in sorted(folder.glob("*/*/")) for file in sorted(place.glob("*.png"))[:per_class]]


def _image(label: int, random: np.random.Generator) -> np.ndarray:
    colour = np.array([label % 3, label % 4, label % 5]) * 40 + 40
    stripes = 30 * np.sin(np.arange(32) * (label + 1) / 3)
    noise = random.normal(0, 20, (32, 32, 3))
    return np.clip(colour + stripes[None, :, None] + noise, 0, 255).astype(np.uint8)


SHAPE = (36, 128, 128)
"""The number, the height and the width of the radar images."""


def radar(folder: Path) -> Path:
    """Return a file in the layout of the radar images of radar-mrms.

    Without FARANDOLE_DATA it is created in ``folder``: showers from a seed, which move by a cell and a half from image
    to image.
    """
    if given := os.environ.get("FARANDOLE_DATA"):
        return Path(given) / "radar-mrms" / "mrms-20190610.npz"
    random = np.random.default_rng(0)
    images, rows, columns = np.ogrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    rain = np.zeros(SHAPE)
    for top, left, size in random.uniform((-50, -50, 5), (150, 150, 15), (60, 3)):
        away = (rows - top - images / 2) ** 2 + (columns - left - 1.4 * images) ** 2
        rain += random.uniform(2, 8) * np.exp(-away / (2 * size**2))
    times = np.array([f"2019-06-10T{2 * image // 60:02}:{2 * image % 60:02}:00Z" for image in range(SHAPE[0])])
    file = folder / "mrms-20190610.npz"
    np.savez_compressed(file, rain_x10=(10 * rain).astype(np.uint16), time=times)
    return file


TOPICS, AREAS, USERS = 5, 40, 600
"""The areas of a web site, their topics, and its users."""


def msweb(folder: Path) -> Path:
    """Return a folder in the layout of msweb-mini.

    Without FARANDOLE_DATA it is ``folder``: visits from a seed, most of them to areas of the user's topic.
    """
    if given := os.environ.get("FARANDOLE_DATA"):
        return Path(given) / "msweb-mini"
    random = np.random.default_rng(0)
    titles = [f"{area},Area {area} of topic {area % TOPICS},/{area}" for area in range(AREAS)]
    _write(folder / "items.csv", "item_id,title,path", titles)
    visits = [f"{user},{area}" for user in range(USERS) for area in sorted(_visited(user % TOPICS, random))]
    _write(folder / "visits.csv", "user_id,item_id", visits)
    return folder


def _visited(topic: int, random: np.random.Generator) -> list[int]:
    weights = np.where(np.arange(AREAS) % TOPICS == topic, 8.0, 1.0) / np.arange(2, AREAS + 2)
    chosen = random.choice(AREAS, random.integers(1, 9), replace=False, p=weights / weights.sum())
    return [int(area) for area in chosen]


def _write(file: Path, header: str, lines: list[str]) -> None:
    file.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
