"""A version of a stored model as a stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from farandole.batches.columns import Batch
from farandole.exceptions import ModelError
from farandole.models.load import load_model
from farandole.models.model import NUMPY_TYPES, ModelInfo, TensorInfo
from farandole.models.store import ModelStore


class ModelStage:
    """Replaces the columns that are the inputs of a model by its outputs. It computes on the CPU."""

    def __init__(self, key: str) -> None:
        self._model = load_model(key)
        self._info = ModelStore().find(key)

    def __call__(self, batch: Batch) -> Batch:
        """Compute the outputs of a batch."""
        import torch

        taken = inputs_of(batch, self._info)
        tensors = {name: torch.from_numpy(array) for name, (_, array) in taken.items()}
        with torch.inference_mode():
            found = self._model(**tensors)
        used = {column for columns, _ in taken.values() for column in columns}
        return {name: values for name, values in batch.items() if name not in used} | _outputs(found, self._info)


def _outputs(found: Any, info: ModelInfo) -> Batch:
    values = found.values() if isinstance(found, Mapping) else found if isinstance(found, tuple | list) else [found]
    return {output.name: value for output, value in zip(info.outputs, values, strict=True)}


def inputs_of(batch: Batch, info: ModelInfo) -> dict[str, tuple[list[str], np.ndarray[Any, Any]]]:
    """Return the columns and the array for each input of a model.

    - Columns with the names of the inputs are taken.
    - Otherwise, a model with one input gets the only numeric column of its shape, or all numeric columns with one value
      for each row side by side, if their number fits.

    Raises ModelError if the batch does not have the inputs.
    """
    if all(one.name in batch for one in info.inputs):
        return {one.name: ([one.name], _array(batch[one.name], one, info)) for one in info.inputs}
    found = {name: np.asarray(values) for name, values in batch.items() if hasattr(values, "shape")}
    numeric = {name: array for name, array in found.items() if array.dtype.kind in "biuf"}
    if len(info.inputs) == 1:
        [single] = info.inputs
        fitting = [name for name, array in numeric.items() if _fits(array, single)]
        if len(fitting) == 1:
            return {single.name: (fitting, _array(numeric[fitting[0]], single, info))}
        flat = {name: array for name, array in numeric.items() if array.ndim == 1}
        if flat and _fits(side_by_side := np.stack(list(flat.values()), axis=1), single):
            return {single.name: (list(flat), _array(side_by_side, single, info))}
    wanted = ", ".join(map(str, info.inputs))
    raise ModelError(
        f"the batch has the columns {_described(batch)}, and the example of {info} has {wanted}, where -1 is any size; "
        "return columns with the names and shapes of the example from the stage before it"
    )


def _fits(array: np.ndarray[Any, Any], tensor: TensorInfo) -> bool:
    return len(array.shape) == len(tensor.shape) and all(
        wanted in {-1, size} for wanted, size in zip(tensor.shape, array.shape, strict=True)
    )


def _described(batch: Batch) -> str:
    shapes = {name: getattr(values, "shape", None) for name, values in batch.items()}
    return ", ".join(f"{name} (a list)" if shape is None else f"{name} {list(shape)}" for name, shape in shapes.items())


def _array(values: Any, tensor: TensorInfo, info: ModelInfo) -> np.ndarray[Any, Any]:
    array = np.ascontiguousarray(values, dtype=NUMPY_TYPES[tensor.datatype])
    if not _fits(array, tensor):
        raise ModelError(
            f"the column {tensor.name} of the batch has the shape {list(array.shape)}, and the example of {info} has "
            f"{tensor}, where -1 is any size; return it in this shape from the stage before it"
        )
    return array
