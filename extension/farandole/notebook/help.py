"""Explains the actions of the magics, and suggests options that are similar to misspelled ones."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Sequence

from farandole.exceptions import UsageError
from farandole.suggestions import did_you_mean

OPTION = re.compile(r"--[a-z-]+")
QUESTION = re.compile(r"(?P<action>\s*%(cluster|runs|models|serve|snapshot|dataset)\s+\w+)(\s.*)?\?{1,2}\s*")


def ask_for_help(lines: list[str]) -> list[str]:
    """Replace ``%cluster start?`` in a cell by ``%cluster start --help``, and so for all magics with actions.

    IPython calls this function before its own transformations, which would look for an object with the name ``start``.
    """
    found = [(line, QUESTION.fullmatch(line)) for line in lines]
    return [f"{match['action']} --help\n" if match else line for line, match in found]


def explained(name: str, action: Callable[..., object], parser: argparse.ArgumentParser) -> str:
    """Return the help on an action, such as ``%cluster start``.

    It is the docstring of the action and the help on each option that the docstring names.
    """
    text, named = _documented(action)
    rows = [
        f"  {', '.join(one.option_strings):<16}{(one.help or '').replace('%%', '%')}"
        for one in parser._actions
        if named & set(one.option_strings)
    ]
    return "\n".join([f"{name}: {text}", *rows])


def check_options(
    name: str, action: Callable[..., object], options: argparse.Namespace, parser: argparse.ArgumentParser
) -> None:
    """Raise UsageError if an option was given that an action does not have. Its docstring names those that it has."""
    _, named = _documented(action)
    given = [one for one in parser._actions if one.option_strings and getattr(options, one.dest) != one.default]
    for one in given:
        if not named & set(one.option_strings):
            known = f"its options are {', '.join(sorted(named))}" if named else "it has none"
            raise UsageError(f"`{name}` has no option {one.option_strings[0]}; {known}")


def _documented(action: Callable[..., object]) -> tuple[str, set[str]]:
    """Return the docstring of an action, and the options that it names."""
    text, _, options = (inspect.getdoc(action) or "").partition("\n\nOptions: ")
    return text, set(OPTION.findall(options))


def similar_option(words: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Return a suggestion for the first word that looks like an option but is none, or an empty string."""
    known = [option for one in parser._actions for option in one.option_strings]
    options = (word.partition("=")[0] for word in words if word.startswith("--"))
    unknown = (word for word in options if not any(option.startswith(word) for option in known))
    return did_you_mean(next(unknown, ""), known)
