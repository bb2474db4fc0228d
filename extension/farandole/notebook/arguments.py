"""Reads the arguments of the magics, and performs their actions."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import Any

from IPython.core.error import UsageError as IPythonUsageError

from farandole.driver.options import Elastic
from farandole.exceptions import UsageError
from farandole.notebook.help import check_options, explained, similar_option
from farandole.suggestions import did_you_mean

MISSING_ACTION = "required: action"
"""In argparse's error message if the action is missing. The names of other arguments may follow."""


def parse_line(magic: Any, line: str, *, actions: Sequence[str] = ()) -> argparse.Namespace:
    """Return the arguments of a magic. Unlike IPython's parser, this one removes the quotes around an argument.

    ``actions`` are those of a magic that needs one.
    """
    try:
        words = shlex.split(line)
    except ValueError as exc:
        raise UsageError(f"the quotes in {line.strip()!r} do not match; close them, or leave them out") from exc
    try:
        options: argparse.Namespace = magic.parser.parse_args(words)
    except IPythonUsageError as exc:
        if actions and MISSING_ACTION in str(exc):
            raise UsageError(f"the action is missing; use one of {', '.join(actions)}") from exc
        raise UsageError(f"{exc}.{similar_option(words, magic.parser)}") from exc
    return options


def unknown_action(magic: str, action: str, actions: Sequence[str]) -> str:
    """Return the message for an unknown action of a magic."""
    return f"{magic} has no action {action!r}; use one of {', '.join(actions)}.{did_you_mean(action, actions)}"


def perform(
    magic: str,
    options: argparse.Namespace,
    actions: dict[str, Callable[[argparse.Namespace], Any]],
    parser: argparse.ArgumentParser,
) -> Any:
    """Perform the action of a magic, or explain it."""
    if options.action not in actions:
        raise UsageError(unknown_action(magic, options.action, tuple(actions)))
    if options.help:
        print(explained(f"{magic} {options.action}", actions[options.action], parser))
        return None
    check_options(f"{magic} {options.action}", actions[options.action], options, parser)
    return actions[options.action](options)


def check_variable(name: str, problem: str) -> None:
    """Raise UsageError if ``name`` cannot be the name of a variable."""
    if not name.isidentifier() or iskeyword(name):
        raise UsageError(
            f"{problem} {name!r}: a variable's name has only letters, digits and underscores, begins with no digit and "
            "is no keyword"
        )


def variable_names(magic: str, words: list[str]) -> list[str]:
    """Return the names in the arguments of ``magic``. Raises UsageError if one cannot be the name of a variable."""
    names = [name for word in words for name in word.replace(",", " ").split()]
    for name in names:
        check_variable(name, f"{magic} cannot copy")
    return names


def elastic_options(options: argparse.Namespace) -> Elastic | None:
    """Return the options of an elastic run, or None. Raises UsageError if they are given without ``--elastic``."""
    chosen = {name: getattr(options, name) for name in ("min_ranks", "max_ranks", "lr_rule", "hung")}
    given = {name: value for name, value in chosen.items() if value is not None}
    if given and not options.elastic:
        raise UsageError(f"--{next(iter(given)).replace('_', '-')} is for elastic runs; add `--elastic`")
    return Elastic(**given) if options.elastic else None


def is_number(argument: str | int | None) -> bool:
    """Return whether an argument is a whole number."""
    return str(argument).removeprefix("-").isdecimal()
