"""What the store knows of a version of a model: the content of its ``model.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from farandole.exceptions import UsageError
from farandole.models.names import VERSION, ModelName
from farandole.protocol import is_number
from farandole.reading import check_types
from farandole.runs.writer import strict_json

INFO_FILE = "model.json"
WEIGHTS_FILE = "weights.safetensors"
PROGRAM_FILE = "program.pt2"
ONNX_FILE = "model.onnx"
ONNX_DATA_FILE = "model.onnx.data"
"""The parameters of an ONNX model of more than 2 GB."""
EXAMPLE_FILE = "example.json"
STORED = (WEIGHTS_FILE, PROGRAM_FILE, ONNX_FILE, ONNX_DATA_FILE, EXAMPLE_FILE)
"""The files that a version may have besides `INFO_FILE`."""
NUMPY_TYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
"""The NumPy type for each datatype of tensors, in the terms of the Open Inference Protocol.

These are names, because a notebook server imports this module and needs no NumPy.

Source: https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""
DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_SIZE = 2**40


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """An input or an output of a model.

    Attributes:
        name: the name in requests and answers.
        datatype: a key of `NUMPY_TYPES`.
        shape: the sizes of the dimensions. -1 stands for any size.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.datatype} {list(self.shape)}"


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """The size of a file in bytes, and its SHA-256 digest."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """A version of a model.

    Attributes:
        name: the name of the model.
        version: counted from 1.
        folder: the folder of the version.
        created: when it was saved, in seconds since the epoch.
        run: id of the run that saved it, or an empty string.
        git: commit of the repository in which the run was started, with ``-dirty`` if files differed from it, or an
            empty string.
        data: what the user says of the data, such as a digest or a version.
        metrics: numbers that describe how good the model is, by name.
        labels: the names of the classes that its first output tells apart, in their order.
        inputs: the inputs. Empty if the model was saved without an example.
        outputs: the outputs. Empty if the model was saved without an example.
        versions: the versions of Python, torch and other packages, by package.
        files: the files besides ``model.json``, by name.
    """

    name: ModelName
    version: int
    folder: Path
    created: float
    run: str = ""
    git: str = ""
    data: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}:{self.version}"

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(file.bytes for file in self.files.values())

    def to_json(self) -> str:
        """Return the content of ``model.json``."""
        own = {name: value for name, value in asdict(self).items() if name != "folder"}
        return strict_json({**own, "name": self.name.model}, indent=2) + "\n"

    @classmethod
    def from_json(cls, record: Mapping[str, Any], name: ModelName, folder: Path) -> ModelInfo:
        """Make an info from a parsed ``model.json``, in the folder of a version. Raises ValueError if it is not valid.

        The name and the version are those of the folders, in case the files were copied from elsewhere.
        """
        known = {key: record[key] for key in cls.__dataclass_fields__ if key in record}
        known |= {"name": name, "folder": folder, "version": _version(folder.name)}
        check_types({key: known[key] for key in _KINDS if key in known}, _KINDS, INFO_FILE)
        known["metrics"] = _metrics(known.get("metrics", {}))
        known["labels"] = _labels(known.get("labels", []))
        known["versions"] = _texts(known.get("versions", {}), "versions")
        known |= {key: _tensors(known.get(key, []), key) for key in ("inputs", "outputs")}
        known["files"] = {one: _stored_file(one, about) for one, about in known.get("files", {}).items()}
        if "created" not in known or WEIGHTS_FILE not in known["files"]:
            raise ValueError(f"{INFO_FILE} has no 'created' or no {WEIGHTS_FILE!r} in 'files'")
        return cls(**known)


_KINDS = {
    "created": "time",
    "run": "text",
    "git": "text",
    "data": "text",
    "metrics": "object",
    "versions": "object",
    "files": "object",
}


def checked_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as Python numbers. Values of NumPy and tensors with one element are converted.

    Raises UsageError if a name is not a text or a value is not a finite number.
    """
    found = {name: _plain(value) for name, value in metrics.items()}
    for name, value in found.items():
        if not isinstance(name, str) or not is_number(value):
            raise UsageError(f"the metric {name!r} is {value!r}; metrics are finite numbers with names")
    return {str(name): value for name, value in found.items()}


def checked_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the names of classes. Raises UsageError if they are not different texts."""
    found = tuple(labels) if not isinstance(labels, str) else ()
    if not _are_labels(found) or isinstance(labels, str):
        raise UsageError(f"labels={labels!r} must be a list of different texts, one for each class")
    return found


def commit_of(state: Mapping[str, Any] | None) -> str:
    """Return the commit of ``git`` in a `RunInfo`, with ``-dirty`` if files differed from it, or an empty string."""
    commit = (state or {}).get("commit")
    return f"{commit}{'-dirty' if (state or {}).get('dirty') else ''}" if isinstance(commit, str) else ""


def _plain(value: Any) -> Any:
    try:
        return value.item()
    except (AttributeError, RuntimeError, ValueError):
        # A number, or an array or a tensor that does not have one element.
        return value


def _version(text: str) -> int:
    if VERSION.fullmatch(text) is None:
        raise ValueError(f"the folder {text!r} is not a version")
    return int(text)


def _metrics(found: dict[str, Any]) -> dict[str, float]:
    if not all(is_number(value) for value in found.values()):
        raise ValueError(f"'metrics' in {INFO_FILE} must be numbers")
    return found


def _are_labels(found: Sequence[Any]) -> bool:
    return all(isinstance(one, str) and one for one in found) and len(set(found)) == len(found)


def _labels(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not _are_labels(found):
        raise ValueError(f"'labels' in {INFO_FILE} must be a list of different texts")
    return tuple(found)


def _texts(found: dict[str, Any], key: str) -> dict[str, str]:
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"{key!r} in {INFO_FILE} must be texts")
    return found


def _tensors(found: Any, key: str) -> tuple[TensorInfo, ...]:
    if not isinstance(found, list) or not all(_is_tensor(one) for one in found):
        raise ValueError(f"{key!r} in {INFO_FILE} must be a list of tensors, each with a name, a datatype and a shape")
    return tuple(TensorInfo(name=one["name"], datatype=one["datatype"], shape=tuple(one["shape"])) for one in found)


def _is_tensor(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("name"), str)
        and _is_datatype(one.get("datatype"))
        and isinstance(one.get("shape"), list)
        and all(type(size) is int and -1 <= size < MOST_SIZE for size in one["shape"])
    )


def _is_datatype(name: Any) -> bool:
    return isinstance(name, str) and name in NUMPY_TYPES


def _stored_file(name: str, about: Any) -> StoredFile:
    if name not in STORED:
        raise ValueError(f"{INFO_FILE} lists the file {name!r}, and a model has only {', '.join(STORED)}")
    size, digest = (about.get(key) if isinstance(about, dict) else None for key in ("bytes", "sha256"))
    if type(size) is not int or not 0 <= size < MOST_SIZE:
        raise ValueError(f"{INFO_FILE} has no valid size of {name!r}")
    if not isinstance(digest, str) or DIGEST.fullmatch(digest) is None:
        raise ValueError(f"{INFO_FILE} has no valid sha256 of {name!r}")
    return StoredFile(bytes=size, sha256=digest)
