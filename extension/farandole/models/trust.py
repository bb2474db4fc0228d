"""Refuses programs of torch that other users may have written. Loading one can run code that its author chose."""

from __future__ import annotations

from farandole.exceptions import ModelError
from farandole.models.model import ModelInfo
from farandole.reading import other_writer


def check_writers(info: ModelInfo) -> None:
    """Raise ModelError if other users than this one and root can write the program of a version."""
    if fault := other_writer(info.folder):
        raise ModelError(
            f"{info} is not loaded, because other users may have written it and loading it runs their code: {fault}. "
            f"If you trust them, copy it to your own store with `%models copy {info}`. An endpoint also serves it if "
            "it is saved with `onnx=True`, because ONNX runs no code."
        )
