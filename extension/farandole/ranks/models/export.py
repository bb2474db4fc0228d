"""Exports models with torch.export and to ONNX, and describes their inputs and outputs."""

from __future__ import annotations

import inspect
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from farandole.exceptions import ModelError, UsageError
from farandole.models.model import ONNX_FILE, PROGRAM_FILE, TensorInfo

TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.int8: "INT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.float16: "FP16",
    torch.float32: "FP32",
    torch.float64: "FP64",
}
ANY = -1
EXAMPLE_ROWS = 1
"""Rows of the example that are stored if the batch can vary.

A form sends the example, and a server computes it before the first request.
"""
OPERATOR = re.compile(r"\b(?:aten|prims)[.:]+[\w.]+")


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An exported model.

    Attributes:
        inputs: the inputs, in the order of the program's arguments.
        outputs: the outputs, in the order of the program's results.
        example: a request with the first row of the example, or with all rows if their number is fixed.
    """

    program: ExportedProgram
    onnx: torch.onnx.ONNXProgram | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    example: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Write the program, without its parameters, which are in another file, and without a pickle."""
        # torch.export.save pickles the example inputs.
        self.program.example_inputs = None
        weights = self.program.state_dict
        weights.update({name: _without_content(weight) for name, weight in weights.items()})
        # If the disk is full, torch's own writer of files ends the process.
        content = io.BytesIO()
        torch.export.save(self.program, content)
        (folder / PROGRAM_FILE).write_bytes(content.getbuffer())
        if self.onnx is not None:
            self.onnx.save(folder / ONNX_FILE)


def _without_content(weight: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_like(weight, device="meta")
    return nn.Parameter(empty, weight.requires_grad) if isinstance(weight, nn.Parameter) else empty


def export(model: nn.Module, example: Any, *, onnx: bool) -> Exported:
    """Export a model that is on the CPU and in evaluation mode. See `farandole.ranks.models.save.save_model`.

    The size of the batch can vary if the model allows this, and if each row of the outputs depends on the same row of
    the inputs only. Otherwise, it is that of the example.

    Raises:
        UsageError: the example does not match the model.
        ModelError: the model cannot be exported. The message names the operator if there is one.
    """
    tensors = _named(model, example)
    # The exporters warn of attributes of torch's own modules, and of their own deprecated calls.
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        try:
            results = _computed(model, tensors)
        except Exception as exc:  # the model is the user's code
            raise UsageError(f"the model does not accept its example: {_first_line(exc)}") from exc
        program, batched = _program(model, tensors, with_batch=_has_batch(model, tensors, results))
        names = [*results]
        converted = _onnx(program, [*tensors], names) if onnx else None
    return Exported(
        program=program,
        onnx=converted,
        inputs=_described(tensors, batched),
        outputs=_described(results, batched),
        example=_request({name: tensor[:EXAMPLE_ROWS] for name, tensor in tensors.items()} if batched else tensors),
    )


def _named(model: nn.Module, example: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of the example by the names of the arguments of ``forward``."""
    named: Mapping[str, Any] = example if isinstance(example, Mapping) else {}
    placed: Sequence[Any] = () if named else example if isinstance(example, tuple | list) else (example,)
    try:
        bound = inspect.signature(model.forward).bind(*placed, **named).arguments
    except TypeError as exc:
        raise UsageError(f"the example does not match the arguments of the model's forward(): {exc}") from exc
    for name, value in bound.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(
                f"the example has a {type(value).__name__} for {name!r}; an endpoint takes one tensor for each argument"
            )
        _check_type(name, value)
    return {name: value.detach().cpu() for name, value in bound.items()}


def _computed(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    # A model may change its inputs.
    return _results(model(**{name: tensor.clone() for name, tensor in tensors.items()}))


def _results(found: Any) -> dict[str, torch.Tensor]:
    """Return the model's results by their names."""
    if isinstance(found, torch.Tensor):
        named: dict[str, Any] = {"output": found}
    elif isinstance(found, Mapping):
        named = dict(found)
    elif isinstance(found, tuple | list):
        named = {f"output_{place}": one for place, one in enumerate(found)}
    else:
        named = {"output": found}
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(
                f"the model returns a {type(value).__name__} as {name!r}; an endpoint returns tensors, so wrap the "
                "model in a module whose forward() returns a tensor, a tuple or a dict of tensors"
            )
        _check_type(name, value)
    return named


def _check_type(name: str, tensor: torch.Tensor) -> None:
    if tensor.dtype not in TYPES:
        raise UsageError(
            f"{name!r} has the type {tensor.dtype}, which endpoints do not have; convert it to one of "
            f"{', '.join(str(one) for one in TYPES)}"
        )


def _has_batch(model: nn.Module, tensors: Mapping[str, torch.Tensor], results: Mapping[str, torch.Tensor]) -> bool:
    """Return whether each row of the results depends on the same row of the inputs only.

    Only then may an endpoint compute the requests of different callers together. The model computes the example and
    other rows together, and both must get the results that they get alone.
    """
    if not all(tensor.ndim for tensor in (*tensors.values(), *results.values())):
        return False
    if len({len(tensor) for tensor in (*tensors.values(), *results.values())}) != 1:
        return False
    others = {name: _other_rows(tensor) for name, tensor in tensors.items()}
    try:
        alone = _computed(model, others)
        together = _computed(model, {name: torch.cat([tensor, others[name]]) for name, tensor in tensors.items()})
    except Exception:  # noqa: BLE001 - the model is the user's code, and has accepted the example alone
        return False
    return results.keys() == alone.keys() == together.keys() and all(
        _is_close(together[name][: len(result)], result) and _is_close(together[name][len(result) :], alone[name])
        for name, result in results.items()
    )


def _other_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return other values of the same type and shape. Integers, such as indices, remain values of the example."""
    return tensor + tensor.abs() + 1 if tensor.is_floating_point() else tensor.flatten().flip(0).view(tensor.shape)


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether results are equal, except for rounding, which depends on the size of the batch."""
    if found.shape != expected.shape or not expected.is_floating_point():
        return torch.equal(found, expected)
    finite = expected[expected.isfinite()].abs().double()
    tolerance = torch.finfo(expected.dtype).eps ** 0.5
    limit = tolerance * (finite.max().item() if len(finite) else 0.0)
    return torch.allclose(found.double(), expected.double(), rtol=tolerance, atol=limit, equal_nan=True)


def _program(
    model: nn.Module, tensors: Mapping[str, torch.Tensor], *, with_batch: bool
) -> tuple[ExportedProgram, bool]:
    """Return the exported model, and whether the size of its batch can vary."""
    if with_batch:
        # torch.export takes a size of 0 or 1 for a constant.
        several = {name: torch.cat([tensor, tensor]) for name, tensor in tensors.items()}
        shapes = {name: {0: Dim("batch", min=1)} for name in several}
        try:
            return torch.export.export(model, (), several, dynamic_shapes=shapes), True
        except Exception:  # noqa: BLE001 - whatever it is, the second try reports it if it remains
            pass
    try:
        return torch.export.export(model, (), dict(tensors)), False
    except Exception as exc:
        raise ModelError(
            f"the model cannot be exported: {_reason(exc)}. Save it without `example` to keep its parameters only."
        ) from exc


def _onnx(program: ExportedProgram, inputs: list[str], outputs: list[str]) -> torch.onnx.ONNXProgram:
    try:
        # It warns of operators of packages that are not installed.
        with _quiet(logging.getLogger("torch.onnx")):
            found = torch.onnx.export(program, input_names=inputs, output_names=outputs, verbose=False)
    except Exception as exc:
        raise ModelError(
            f"the model cannot be exported to ONNX: {_reason(exc)}. Save it without `onnx=True`; its endpoint then "
            "uses an image with torch."
        ) from exc
    assert found is not None
    return found


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _reason(exc: BaseException) -> str:
    """Return the first line of the innermost error that names an operator, or of the error itself."""
    chain = [exc]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for each in reversed(chain):
        if found := OPERATOR.search(str(each)):
            return (
                f"{_first_line(each)} (operator {found[0]})" if found[0] not in _first_line(each) else _first_line(each)
            )
    return _first_line(exc)


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0].rstrip(".")


def _described(tensors: Mapping[str, torch.Tensor], batched: bool) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(
            name=name,
            datatype=TYPES[tensor.dtype],
            shape=(ANY, *tensor.shape[1:]) if batched else tuple(tensor.shape),
        )
        for name, tensor in tensors.items()
    )


def _request(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return a request of the Open Inference Protocol."""
    return {
        "inputs": [
            {"name": name, "datatype": TYPES[one.dtype], "shape": list(one.shape), "data": one.flatten().tolist()}
            for name, one in tensors.items()
        ]
    }
