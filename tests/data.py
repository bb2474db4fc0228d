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


def _image(label: int, random: np.random.Generator) -> np.ndarray:
    colour = np.array([label % 3, label % 4, label % 5]) * 40 + 40
    stripes = 30 * np.sin(np.arange(32) * (label + 1) / 3)
    noise = random.normal(0, 20, (32, 32, 3))
    return np.clip(colour + stripes[None, :, None] + noise, 0, 255).astype(np.uint8)
