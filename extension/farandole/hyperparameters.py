"""Checks the hyper-parameters of a run, which come from the line of a magic, from ranks and from run folders."""

from __future__ import annotations

import ast
import math
import reprlib
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import TypeAlias

from farandole.exceptions import UsageError
from farandole.protocol import is_number

Hyperparameter: TypeAlias = str | int | float | bool | None

MOST_NAMES = 200
LONGEST_CONFIG_NAME = 100
LONGEST_CONFIG_TEXT = 1_000


def checked(values: Mapping[str, object]) -> dict[str, Hyperparameter]:
    """Return hyper-parameters as plain Python values, which JSON can store. Raises UsageError if one is invalid."""
    if len(values) > MOST_NAMES:
        raise UsageError(
            f"a run has at most {MOST_NAMES} hyper-parameters, not {len(values)}; record only those that you vary"
        )
    return {_name(name): _plain(name, value) for name, value in values.items()}


def parse(words: Sequence[str]) -> dict[str, Hyperparameter]:
    """Return the hyper-parameters in words such as ``lr=0.1``. Raises UsageError if one is invalid.

    A value is a number, True, False, None or a text in quotes, as in Python. Any other value is a text.
    """
    values: dict[str, object] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise UsageError(f"`--config {word}` has no value; write for example `--config {word}=0.01`")
        values[name] = _parsed(text)
    return checked(values)


def _name(name: object) -> str:
    if isinstance(name, str) and len(name) <= LONGEST_CONFIG_NAME and _is_dotted(name):
        return name
    raise UsageError(
        f"{reprlib.repr(name)} cannot be the name of a hyper-parameter; use at most {LONGEST_CONFIG_NAME} letters, "
        "digits and underscores, as in lr or optimizer.lr"
    )


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _plain(name: str, value: object) -> Hyperparameter:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= LONGEST_CONFIG_TEXT:
        return str(value)
    if isinstance(value, Real) and is_number(number := _number(value)):
        return number
    raise UsageError(
        f"the hyper-parameter {name!r} cannot be {reprlib.repr(value)}; use a finite number, a text of at most "
        f"{LONGEST_CONFIG_TEXT:,} characters, True, False or None"
    )


def _number(value: Real) -> float:
    """Return a number of any library as an int or a float, which is infinite if the number is too large."""
    try:
        return int(value) if isinstance(value, Integral) else float(value)
    except OverflowError:
        return math.inf


def _parsed(text: str) -> object:
    """Return the value of a Python literal, or the text itself if it is not a literal of a supported type."""
    try:
        value = ast.literal_eval(text[: LONGEST_CONFIG_TEXT + 1])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if value is None or isinstance(value, str | int | float) else text
