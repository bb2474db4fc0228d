"""Reads the JSON of requests strictly: refuses values of unknown keys and of wrong types, and builds a new body.

The engine ignores the case of JSON keys, and uses the last value if a key occurs twice. The filter therefore accepts
each key only once, spelled as in the engine's documentation, and sends the new body instead of the client's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hub.engine_filter.refused import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[str, Any], Any]

HARMLESS: tuple[Any, ...] = (None, False, 0, "", [], {})


def read_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in a request's body; raise RefusedError if the body is anything else."""
    try:
        found = json.loads(raw.decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise RefusedError(f"The body is not valid JSON: {exc}.") from exc
    if not isinstance(found, dict):
        raise RefusedError("The body is not a JSON object.")
    return found


def rebuild(where: str, value: Any, checks: Mapping[str, Check]) -> dict[str, Any]:
    """Return a new object with the admitted keys, whose values are the results of their checks.

    Other keys are dropped if their values are empty. If such a value is not empty, `RefusedError` names the key.
    """
    if not isinstance(value, dict):
        raise RefusedError(f"{where or 'The body'} must be an object.")
    built = {}
    for key, item in value.items():
        name = f"{where}.{key}" if where else key
        if key in checks:
            if item is not None:
                built[key] = checks[key](name, item)
        elif item not in HARMLESS:
            raise RefusedError(f"{name} is not admitted, because the hub's spawner does not need it.")
    return built


def text(where: str, value: Any) -> str:
    """Check that the value is a string."""
    if not isinstance(value, str):
        raise RefusedError(f"{where} must be a string.")
    return value


def flag(where: str, value: Any) -> bool:
    """Check that the value is a boolean."""
    if not isinstance(value, bool):
        raise RefusedError(f"{where} must be true or false.")
    return value


def number(where: str, value: Any) -> int:
    """Check that the value is an integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise RefusedError(f"{where} must be a whole number.")
    return value


def texts(where: str, value: Any) -> list[str]:
    """Check that the value is a list of strings or a single string; return a list."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise RefusedError(f"{where} must be a list of strings.")
    return [text(where, item) for item in value]


def texts_by_name(where: str, value: Any) -> dict[str, str]:
    """Check that the value is an object whose values are strings."""
    if not isinstance(value, dict):
        raise RefusedError(f"{where} must be an object whose values are strings.")
    return {key: text(f"{where}.{key}", item) for key, item in value.items()}


def one_of(*admitted: Any) -> Check:
    """Return a check that accepts only the ``admitted`` values."""

    def check(where: str, value: Any) -> Any:
        if value not in admitted:
            raise RefusedError(f"{where} may not be {value!r}. It must be one of: {', '.join(map(repr, admitted))}.")
        return value

    return check


def objects(checks: Mapping[str, Check]) -> Check:
    """Return a check for a list of objects; ``checks`` maps their admitted keys to checks of the values."""

    def check(where: str, value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, list):
            raise RefusedError(f"{where} must be a list.")
        return [rebuild(where, item, checks) for item in value]

    return check


def nested(checks: Mapping[str, Check]) -> Check:
    """Return a check for an object; ``checks`` maps its admitted keys to checks of the values."""
    return lambda where, value: rebuild(where, value, checks)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        raise ValueError("a key occurs twice")
    return built


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
