"""``fd.result``: return a value from a run to the driver."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from farandole.exceptions import ReportError
from farandole.protocol import Kind, float_to_json
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.reading import check_levels
from farandole.sizes import size_text

MOST_BYTES = 2**20
MOST_LEVELS = 90
"""Maximum nesting depth of a result. It is lower than the limit for ``run.json``, which contains the result."""


def result(value: Any) -> None:
    """Return ``value`` to the driver as this rank's result of the run. A later call replaces an earlier value.

    NaN and infinities arrive as the strings ``NaN``, ``Infinity`` and ``-Infinity``.

    Args:
        value: numbers, strings, None, tensors and arrays, or nested lists, tuples and dicts of them; at most 1 MiB as
            JSON.

    Raises:
        ReportError: the value cannot be represented as JSON (the message names the item), is larger than 1 MiB, or has
            lists and dicts nested more than `MOST_LEVELS` levels deep.
    """
    plain = _flat(value)
    length = len(json.dumps(plain))
    if length > MOST_BYTES:
        raise ReportError(
            f"fd.result: the value is {size_text(length)} as JSON, but the limit for a result is 1 MiB; "
            f"fetch it with %pull, or save it to a file and return the path."
        )
    reporter.send({"kind": Kind.RESULT, "rank": context.rank(), "time": time.time(), "value": plain})


def _flat(value: Any) -> Any:
    """Convert ``value`` to JSON types. Raise ReportError if it is nested too deeply for ``run.json``."""
    try:
        plain = to_plain(value, "value")
        check_levels(plain, "the value", MOST_LEVELS)
    except (RecursionError, ValueError) as exc:
        raise ReportError(
            f"fd.result: the value has lists and dicts nested more than {MOST_LEVELS} levels deep; return a flat list, "
            "or fetch it with %pull."
        ) from exc
    return plain


def to_plain(value: Any, path: str) -> Any:
    """Convert ``value`` to JSON types. Errors name the path of an unsupported value, e.g. ``value['history'][3]``."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float_to_json(float(value))
    if isinstance(value, Mapping):
        return {_key(key, path): to_plain(item, f"{path}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if callable(getattr(value, "tolist", None)):  # tensors, arrays and NumPy scalars
        return to_plain(_detached(value).tolist(), path)
    raise ReportError(
        f"fd.result: {path} is a {type(value).__name__}; return numbers, text, lists, dicts or arrays, "
        f"or fetch the object itself with %pull."
    )


def _key(key: object, path: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, Integral | Real):
        return str(key)
    raise ReportError(f"fd.result: {path} has a key of type {type(key).__name__}; keys must be text or numbers.")


def _detached(value: Any) -> Any:
    # The size is checked first, to avoid a list of millions of Python numbers. A number takes at least 2 bytes of JSON.
    count = value.numel() if callable(getattr(value, "numel", None)) else getattr(value, "size", 1)
    if isinstance(count, int) and count * 2 > MOST_BYTES:
        raise ReportError(
            f"fd.result: an array of {count} elements is larger than 1 MiB as JSON, the limit for a result; "
            f"fetch it with %pull, or save it to a file and return the path."
        )
    return value.detach() if callable(getattr(value, "detach", None)) else value
