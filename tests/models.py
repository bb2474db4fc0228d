"""Saves small models, whose files only look like those of real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farandole.models.model import ModelInfo
from farandole.models.names import ModelName

if TYPE_CHECKING:
    from pathlib import Path

    from farandole.models.store import ModelStore


def save_small(store: ModelStore, name: str = "iris", weights: bytes = b"weights", **about: Any) -> ModelInfo:
    """Save a version that seems to be exported to ONNX."""

    def write(folder: Path) -> ModelInfo:
        (folder / "weights.safetensors").write_bytes(weights)
        (folder / "model.onnx").write_bytes(b"onnx")
        return ModelInfo(name=ModelName(model=name), version=1, folder=folder, created=1.0, **about)

    return store.save(ModelName(model=name), write)
