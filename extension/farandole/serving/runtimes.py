"""Loads versions of models and computes their outputs, with ONNX Runtime or torch."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from farandole.exceptions import FarandoleError, ModelDamagedError, ModelError
from farandole.models.model import EXAMPLE_FILE, ONNX_FILE, PROGRAM_FILE, WEIGHTS_FILE, ModelInfo
from farandole.models.store import in_use, verify
from farandole.reading import other_writer, read_json, reason

Arrays = Mapping[str, np.ndarray[Any, Any]]

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
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
    """Computes with torch.

    Loading a program can run code that its author chose, even without a pickle: torch evaluates expressions in it. So
    only programs are loaded that nobody but this user and root can write.
    """

    def _load(self) -> None:
        import torch
        from safetensors.torch import load_file

        info = self.info
        if fault := other_writer(info.folder):
            raise ModelError(
                f"{info} is not loaded, because other users may have written it and loading it runs their code: "
                f"{fault}. Save it with `onnx=True`, because ONNX runs no code, or copy it to your own store with "
                "`%models copy`."
            )
        refuse_pickles(info)
        torch.set_num_threads(THREADS)
        program = torch.export.load(info.folder / PROGRAM_FILE)
        weights = load_file(info.folder / WEIGHTS_FILE)
        for name, old in program.state_dict.items():
            parameter = isinstance(old, torch.nn.Parameter)
            program.state_dict[name] = torch.nn.Parameter(weights[name], False) if parameter else weights[name]
        self._module = program.module()

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
    try:
        runtime = kind(info)
        try:
            runtime.warm_up()
        except BaseException:
            runtime.close()
            raise
    except FarandoleError:
        raise
    except Exception as exc:
        # Each library has errors of its own for files that it cannot read.
        raise ModelError(
            f"{info} cannot be loaded: {type(exc).__name__}: {reason(exc)}. Save the model again."
        ) from exc
    return runtime


def _kind(info: ModelInfo) -> type[Runtime]:
    if ONNX_FILE in info.files and importlib.util.find_spec("onnxruntime"):
        return OnnxRuntime
    if importlib.util.find_spec("torch"):
        return TorchRuntime
    raise ModelError(
        f"{info} was not exported to ONNX, and this image has no torch; serve it with an image with torch."
    )


def refuse_pickles(info: ModelInfo) -> None:
    """Raise ModelDamagedError if the program of a version contains a pickle, which torch would load."""
    try:
        with zipfile.ZipFile(info.folder / PROGRAM_FILE) as archive:
            for member in archive.infolist():
                if _is_pickled(archive, member):
                    raise ModelDamagedError(
                        f"{info} is not loaded: {member.filename!r} in {PROGRAM_FILE} is a pickle, and loading it "
                        "could run any code. fd.save_model writes no pickles."
                    )
    except (zipfile.BadZipFile, ValueError, KeyError, AttributeError) as exc:
        raise ModelDamagedError(f"{info} is damaged: {PROGRAM_FILE} cannot be read ({exc}).") from exc


def _is_pickled(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    _, _, path = member.filename.partition("/")
    if path.endswith("_config.json"):
        payloads = json.loads(archive.read(member))["config"].values()
        return any(one["use_pickle"] or not one["path_name"].startswith(("weight_", "tensor_")) for one in payloads)
    return path.endswith(".pt") and member.file_size > 0


def _array(tensor: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return np.array(tensor["data"], dtype=NUMPY_TYPES[tensor["datatype"]]).reshape(tensor["shape"])
