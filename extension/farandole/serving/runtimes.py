"""Loads versions of models and computes their outputs, with ONNX Runtime or torch."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from farandole.exceptions import ModelError
from farandole.models.load import load_errors
from farandole.models.model import EXAMPLE_FILE, NUMPY_TYPES, ONNX_FILE, ModelInfo
from farandole.models.store import in_use, verify
from farandole.reading import read_json

Arrays = Mapping[str, np.ndarray[Any, Any]]

THREADS = 1
"""Threads that compute one batch. Batches are computed one after the other."""


class Runtime(ABC):
    """A version that is loaded. Until it is closed, the version cannot be removed from the store."""

    def __init__(self, info: ModelInfo) -> None:
        self.info = info
        with ExitStack() as held:
            held.enter_context(in_use(info))
            self._load()
            self._held = held.pop_all()

    @abstractmethod
    def _load(self) -> None:
        """Load the files of the version."""

    @abstractmethod
    def compute(self, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Return the outputs for inputs, both by name."""

    def warm_up(self) -> None:
        """Compute the example, so that the first request does not wait for memory and compiled code."""
        example = read_json(self.info.folder, EXAMPLE_FILE)
        self.compute({one["name"]: _array(one) for one in example["inputs"]})

    def close(self) -> None:
        """Allow the store to remove the version."""
        self._held.close()


class OnnxRuntime(Runtime):
    """Computes with ONNX Runtime."""

    def _load(self) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        self._session = onnxruntime.InferenceSession(self.info.folder / ONNX_FILE, options)

    def compute(self, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Return the outputs for inputs, both by name."""
        names = [output.name for output in self.info.outputs]
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))


class TorchRuntime(Runtime):
    """Computes with torch."""

    def _load(self) -> None:
        import torch

        from farandole.models.program import load_program

        torch.set_num_threads(THREADS)
        self._module = load_program(self.info)

    def compute(self, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Return the outputs for inputs, both by name."""
        import torch

        with torch.inference_mode():
            found = self._module(**{name: torch.from_numpy(array) for name, array in inputs.items()})
        values = found.values() if isinstance(found, Mapping) else found if isinstance(found, tuple | list) else [found]
        return {output.name: value.numpy() for output, value in zip(self.info.outputs, values, strict=True)}


def load(info: ModelInfo) -> Runtime:
    """Load a version, after comparing its files with their digests, and compute its example.

    Raises:
        ModelError: the version has no example, is damaged, or cannot be loaded here.
    """
    if EXAMPLE_FILE not in info.files:
        raise ModelError(f"{info} was saved without an example, so it cannot be served; save it with `example=x`.")
    verify(info)
    kind = _kind(info)
    with load_errors(info):
        runtime = kind(info)
        try:
            runtime.warm_up()
        except BaseException:
            runtime.close()
            raise
    return runtime


def _kind(info: ModelInfo) -> type[Runtime]:
    if ONNX_FILE in info.files and importlib.util.find_spec("onnxruntime"):
        return OnnxRuntime
    if importlib.util.find_spec("torch"):
        return TorchRuntime
    raise ModelError(
        f"{info} was not exported to ONNX, and the image of this endpoint has no torch. Stop the endpoint with "
        f"`%serve stop NAME` and start it again with `%serve {info} --name NAME`, which uses an image with torch, or "
        "save the model with `onnx=True`."
    )


def _array(tensor: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return np.array(tensor["data"], dtype=NUMPY_TYPES[tensor["datatype"]]).reshape(tensor["shape"])
