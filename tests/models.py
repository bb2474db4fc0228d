"""Saves small models. The files of `save_small` only look like those of real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
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


def save_sum(store: ModelStore, name: str = "small") -> ModelInfo:
    """Save a model that endpoints can compute: it returns the sum of four numbers."""
    import farandole as fd
    import torch

    linear = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.ones_(linear.weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_MODELS", str(store.folder))
        fd.save_model(linear, name, example=torch.ones(1, 4), onnx=True)
    return store.find(name)
