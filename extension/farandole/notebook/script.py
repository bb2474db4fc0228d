"""A Python file that `%distributed_train FILE.py` runs on the ranks."""

from __future__ import annotations

import ast
import re
import shlex
import tokenize
from dataclasses import dataclass
from pathlib import Path

from farandole.exceptions import UsageError

LINE = re.compile(r"""(?P<options>(?:.*?\s)??)(?P<path>"[^"]+\.py"|'[^']+\.py'|[^\s"']+\.py)(?P<arguments>\s.*)?""")
"""The line of the magic. The first word that ends with ``.py`` is the file."""


@dataclass(frozen=True)
class Script:
    """The absolute path of a file, its arguments and its code."""

    path: Path
    arguments: tuple[str, ...]
    code: str

    @property
    def options(self) -> dict[str, list[str]]:
        """The options of a run that executes the file."""
        return {"script": [str(self.path), *self.arguments]}


def split_line(line: str) -> tuple[str, Script]:
    """Split the line of the magic into its options, and the file with its arguments.

    Raises:
        UsageError: the line names no file, a quotation mark is missing, or the file cannot be read or parsed.
    """
    match = LINE.fullmatch(line.strip())
    if match is None:
        raise UsageError(
            "`%distributed_train` runs a Python file, as in `%distributed_train train.py --epochs 3`; "
            "to run the code of a cell, begin the cell with `%%distributed_train`"
        )
    path = Path(match["path"].strip("\"'")).expanduser().absolute()
    try:
        arguments = shlex.split(match["arguments"] or "")
    except ValueError as exc:
        raise UsageError(f"the arguments of {path.name} cannot be split into words: {exc}") from exc
    script = Script(path, tuple(arguments), _read(path))
    _check(script)
    return match["options"], script


def _read(path: Path) -> str:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except FileNotFoundError as exc:
        raise UsageError(f"there is no file {path.name} in {path.parent}; check the name and the folder") from exc
    except (OSError, SyntaxError, UnicodeDecodeError) as exc:
        raise UsageError(f"the file {path} cannot be read as Python code: {exc}") from exc


def _check(script: Script) -> None:
    """Raise UsageError if the code has a syntax error, which the ranks would report with frames of this package."""
    try:
        ast.parse(script.code)
    except (SyntaxError, ValueError) as exc:
        line = f", line {exc.lineno}: {exc.msg}" if isinstance(exc, SyntaxError) else f": {exc}"
        raise UsageError(f"the file {script.path} is not valid Python{line}") from exc
