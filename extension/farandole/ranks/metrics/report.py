"""``fd.report``: record the metrics of this rank. A call delays the training loop by only a few microseconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from farandole.exceptions import ReportError
from farandole.protocol import LARGEST_STEP, Report, report_to_json
from farandole.ranks import context
from farandole.ranks.metrics import reporter

RESERVED = frozenset({"rank", "time"})

DeferredValue = Callable[[], float]
"""A function that returns a value which a GPU may still be computing."""


def report(step: int | None = None, epoch: int | None = None, **values: Any) -> None:
    """Report metrics, e.g. ``fd.report(step=step, loss=loss)``, which appear live in the run's dashboard.

    A tensor on a GPU is copied on that GPU and read later, so the loop does not wait for it. NaN and infinity are kept.
    Outside a cluster, the values are only checked.

    Args:
        step (int, optional): training step, used as the x-axis of the charts.
        epoch (int, optional): epoch, counted from 0 or 1.
        **values: metrics by name, each a number, or a tensor or array with a single element.

    Raises:
        ReportError: a value is not a single number, ``step`` or ``epoch`` is not a whole number, or a metric has the
            reserved name ``rank`` or ``time``.
    """
    if step is not None and not (type(step) is int and -LARGEST_STEP <= step <= LARGEST_STEP):
        step = _whole("step", step)
    if epoch is not None and not (type(epoch) is int and -LARGEST_STEP <= epoch <= LARGEST_STEP):
        epoch = _whole("epoch", epoch)
    if not RESERVED.isdisjoint(values):
        raise ReportError(
            f"fd.report: {min(RESERVED & values.keys())!r} is a column of every report; choose another name."
        )
    for key, value in values.items():
        if type(value) is not float:
            values[key] = to_number(key, value)
    now = time.time()
    # The sender's thread builds the record, so that the training loop does not spend time on it.
    reporter.current().put(lambda: _record(now, step, epoch, values))


def to_number(key: str, value: Any) -> float | DeferredValue:
    """Return ``value`` as a float, or a function that returns the float later. Error messages name ``key``."""
    if isinstance(value, Real):  # includes bool and NumPy scalars
        return _to_float(key, value)
    if getattr(value, "is_cuda", False) and value.numel() == 1 and not value.is_complex():
        return _read_later(value)
    if not callable(getattr(value, "item", None)):
        raise ReportError(f"fd.report: {key!r} is {_kind(value)}; {_remedy(value)}")
    count = _elements(value)
    if count != 1:
        raise ReportError(
            f"fd.report: {key!r} is a {_type(value)} of {count} elements, but a report takes one number; "
            f"reduce it first, e.g. {key}={key}.mean()."
        )
    return _to_float(key, value.item())


def _record(now: float, step: int | None, epoch: int | None, values: dict[str, Any]) -> dict[str, Any]:
    numbers = {key: value() if callable(value) else value for key, value in values.items()}
    return report_to_json(Report(rank=context.rank(), time=now, step=step, epoch=epoch, values=numbers))


def _to_float(key: str, value: Any) -> float:
    if not isinstance(value, Real):
        raise ReportError(f"fd.report: {key!r} holds {_kind(value)}; {_remedy(value)}")
    try:
        return float(value)
    except OverflowError as exc:
        raise ReportError(f"fd.report: {key!r} is too large for a float; report its logarithm.") from exc


def _whole(key: str, value: Any) -> int:
    number = value
    if isinstance(value, dict):
        raise ReportError(f"fd.report: metrics are given by name, and the {key} is a dict; write fd.report(**values).")
    if not isinstance(value, Integral) and callable(getattr(value, "item", None)) and _elements(value) == 1:
        number = value.item()
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise ReportError(
            f"fd.report: {key} must be a whole number, not {value!r} ({_type(value)}). Give metrics names, e.g. "
            "fd.report(step=step, loss=loss)."
        )
    whole = int(number)
    if abs(whole) > LARGEST_STEP:
        raise ReportError(f"fd.report: {key} is not between -{LARGEST_STEP} and {LARGEST_STEP}; count from 0.")
    return whole


def _read_later(tensor: Any) -> DeferredValue:
    # The copy is needed because the loop may change the tensor in place before the sender reads it. The event is needed
    # because the sender's thread uses another CUDA stream. Neither blocks the training loop.
    import torch

    copy = tensor.detach().clone()
    done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record(torch.cuda.current_stream(copy.device))

    def read() -> float:
        try:
            done.synchronize()
            return float(copy.item())
        except RuntimeError:  # the GPU is lost or a kernel failed; the training loop gets the same error
            return math.nan

    return read


def _elements(value: Any) -> int:
    count = value.numel() if callable(getattr(value, "numel", None)) else getattr(value, "size", 1)
    return int(count)


def _type(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {_type(value)}"


def _remedy(value: Any) -> str:
    if isinstance(value, dict):
        return "report its entries by name: fd.report(**values)."
    if isinstance(value, list | tuple | set):
        return "report one number, such as its mean, or one name an entry."
    if isinstance(value, str | bytes):
        return "report numbers only; print text, or return it with fd.result."
    if isinstance(value, complex):
        return "report its real and imaginary parts or abs() of it."
    return "report a number, or a tensor or array of one element."
