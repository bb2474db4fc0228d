"""The requests that the panel offers to send to an endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from farandole.driver.endpoints.client import invalid
from farandole.exceptions import ModelNotFoundError, UsageError
from farandole.models.model import EXAMPLE_FILE, TensorInfo
from farandole.models.store import ModelStore
from farandole.reading import printable, read_json, reason
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.wire_hub import Endpoint

MOST_ZEROS = 10**6
"""The largest number of values in a request of zeros."""
ZEROS = {"BOOL": False, "FP16": 0.0, "FP32": 0.0, "FP64": 0.0}
"""The zeros of the datatypes that are not integers."""


def saved_example(endpoint: Endpoint) -> dict[str, Any]:
    """Return the example of an endpoint's version, or of the latest version if it is unknown which one it serves.

    Raises RefusedError or UsageError if the model store does not have it.
    """
    model, version = endpoint["model"], endpoint["version"]
    try:
        info = ModelStore().find(f"{model}:{version}" if version else str(model))
    except ModelNotFoundError as exc:
        raise RefusedError("unknown", str(exc)) from exc
    try:
        return read_json(info.folder, EXAMPLE_FILE)
    except (OSError, ValueError) as exc:
        raise UsageError(f"the example of {info} cannot be read: {reason(exc)}") from exc


def zeros(name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with a row of zeros for each input that an endpoint describes.

    The model of an image need not be in the model store, which may even have another model with its name.

    Raises:
        EndpointError: the description is not valid.
        UsageError: the inputs are too large.
    """
    try:
        inputs = [
            TensorInfo(name=str(one["name"]), datatype=str(one["datatype"]), shape=_row(one["shape"]))
            for one in metadata["inputs"]
        ]
    except (KeyError, OverflowError, TypeError, ValueError) as exc:
        raise invalid(name, f"description of its inputs: {printable(repr(exc))}") from exc
    if sum(prod(one.shape) for one in inputs) > MOST_ZEROS:
        raise UsageError(
            f"the inputs of the endpoint {name} are too large for an example; use `fd.Endpoint({name!r}).infer` in a "
            "notebook"
        )
    return {"inputs": [_zeros(one) for one in inputs]}


def _row(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape in which each dimension of any size has the size 1."""
    return tuple(1 if size < 0 else int(size) for size in shape)


def _zeros(tensor: TensorInfo) -> dict[str, Any]:
    data = [ZEROS.get(tensor.datatype, 0)] * prod(tensor.shape)
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": data}
