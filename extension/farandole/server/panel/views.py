"""Reads the views that drivers write, and checks that the views match the types of the messages to the page."""

from __future__ import annotations

import builtins
import types
import typing
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints, is_typeddict

from farandole.protocol import is_number
from farandole.reading import read_json
from farandole.runs.view import extremes
from farandole.runs.view_files import LINES, VIEW
from farandole.server.panel import wire

MOST_SERIES = 10_000
"""Maximum number of series of a run that the panel shows."""
LATER_KEYS: dict[str, Any] = {"seconds_left": None, "reports": 0, "output_bytes": 0, "warnings": [], "sync": None}
"""The values of the keys that the views of older releases lack."""


def read_view(folder: Path, *, by_rank: bool = False) -> wire.RunView:
    """Return the view from a run's folder; raise OSError or ValueError if the file is missing or is not a view."""
    view = read_json(folder, VIEW)
    if by_rank:
        view["series"] = read_json(folder, LINES).get("series")
    _complete(view)
    if not fits(view, wire.RunView):
        raise ValueError(f"{VIEW!r} is not the view of a run")
    return cast("wire.RunView", view)


def _complete(view: dict[str, Any]) -> None:
    """Add the keys that the views of older releases lack, to the view, its ranks and its series."""
    for key, value in LATER_KEYS.items():
        view.setdefault(key, copy(value))
    ranks = view.get("ranks")
    for row in ranks if isinstance(ranks, list) else ():
        if isinstance(row, dict):
            row.setdefault("model", None)
    series = view.get("series")
    if isinstance(series, list):
        for one in series:
            if isinstance(one, dict):
                one["lowest"], one["highest"] = extremes(one)
                one.setdefault("time", [])
                one.setdefault("epoch", [])


def fits(value: Any, kind: Any) -> bool:
    """Return whether a JSON value matches ``kind``, a type from `farandole.server.panel.wire`."""
    arguments = get_args(kind)
    match get_origin(kind):
        case builtins.list:
            return isinstance(value, list) and _all_fit(value, arguments[0])
        case builtins.dict:
            return isinstance(value, dict) and _all_fit(list(value.values()), arguments[1])
        case types.UnionType:
            return any(fits(value, one) for one in arguments)
        case typing.Literal:
            return value in arguments
        case _:
            return _fits_plain(value, kind)


def _fits_plain(value: Any, kind: Any) -> bool:
    if is_typeddict(kind):
        return isinstance(value, dict) and all(key in value and fits(value[key], hint) for key, hint in _hints(kind))
    if kind in {int, float}:
        return is_number(value) and (kind is float or isinstance(value, int))
    return kind is Any or isinstance(value, kind)


def _all_fit(values: list[Any], kind: Any) -> bool:
    # Lines may contain hundreds of thousands of numbers, so the types are collected in a set, which is faster.
    if kind == float | None:
        return set(map(type, values)) <= {int, float, types.NoneType}
    return all(fits(one, kind) for one in values)


@cache
def _hints(kind: type) -> list[tuple[str, Any]]:
    return list(get_type_hints(kind).items())
