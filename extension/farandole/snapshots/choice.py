"""What snapshots leave out: derived files by default, and what the user's ``snapshots.toml`` names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

from farandole.exceptions import UsageError
from farandole.protocol import CHECKPOINTS
from farandole.reading import read_bytes, reason
from farandole.runs.store import default_folder
from farandole.suggestions import did_you_mean

FILE = ".config/farandole/snapshots.toml"
MOST_BYTES = 2**16
DERIVED = ("~/.cache", "~/.local/share/Trash", "__pycache__", ".ipynb_checkpoints", "node_modules")
"""What is left out by default. An entry without a slash applies in all folders."""
NAME = re.compile(r"[^/?\[\\]+")
"""A pattern for names that Python and restic compare in the same way."""
PARTIAL = ".farandole-restore-"
"""The beginning of the names of folders in which restic restores. They only stay if the process is killed."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The user's choice of what snapshots leave out.

    Attributes:
        runs: whether the folder of runs is in snapshots.
        checkpoints: whether the checkpoints of runs are in snapshots.
        exclude: patterns of further files to leave out, in restic's syntax, or with ``~/`` at the beginning.
        include: those of `DERIVED` that are not left out.
    """

    runs: bool = True
    checkpoints: bool = False
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()

    def left_out(self) -> tuple[str, ...]:
        """Return the patterns of what is left out, as users read them."""
        runs = str(default_folder())
        choices = ((self.runs, runs), (self.checkpoints or not self.runs, f"{runs}/*/{CHECKPOINTS}"))
        chosen = [pattern for kept, pattern in choices if not kept]
        return (*(one for one in DERIVED if one not in self.include), *chosen, *self.exclude)

    def patterns(self, home: Path) -> list[str]:
        """Return the same patterns for restic."""
        runs = default_folder()
        # restic has real paths, and the home may be a link. If the folder of runs is a link, the link is left out.
        folders = {str(runs): str(runs.parent.resolve() / runs.name), str(Path.home()): str(home), str(home): str(home)}
        return [_for_restic(one, str(home), folders) for one in (*self.left_out(), f"{PARTIAL}*")]


def _for_restic(pattern: str, home: str, folders: Mapping[str, str]) -> str:
    """Return the pattern for restic, in which the names of these folders are literal and their real paths.

    restic compares a pattern that is not absolute also with the folders above the home, and would leave out all of it.
    A name that none of them has needs no absolute pattern, which takes restic longer to compare.
    """
    for folder, real in folders.items():
        if pattern == folder or pattern.startswith(f"{folder}/"):
            return escaped(real) + pattern.removeprefix(folder)
    if pattern.startswith("~/"):
        return f"{escaped(home)}/{pattern.removeprefix('~/')}"
    if NAME.fullmatch(pattern) and not any(fnmatchcase(part, pattern) for part in PurePath(home).parts):
        return pattern
    return pattern if pattern.startswith("/") else f"{escaped(home)}/**/{pattern}"


def escaped(path: str) -> str:
    """Return the pattern of restic that matches this path only."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", path)


def read_choice(home: Path) -> Choice:
    """Return the choice in the user's file, or the defaults if there is none. Raises UsageError if it is not valid."""
    try:
        settings = tomllib.loads(read_bytes(home, FILE, MOST_BYTES).decode())
    except FileNotFoundError:
        return Choice()
    except (OSError, ValueError) as exc:
        raise UsageError(f"~/{FILE} cannot be read: {reason(exc)}. Correct or remove it.") from exc
    return _checked(settings)


def _checked(settings: Mapping[str, Any]) -> Choice:
    """Return the choice of these settings. Raises UsageError for settings that do not exist or have another type."""
    for name, value in settings.items():
        if name not in Choice.__dataclass_fields__:
            known = list(Choice.__dataclass_fields__)
            raise UsageError(f"~/{FILE} has {name!r}; it may have {', '.join(known)}.{did_you_mean(name, known)}")
        if name in {"runs", "checkpoints"} and not isinstance(value, bool):
            raise UsageError(f"{name!r} in ~/{FILE} must be true or false")
        if name in {"exclude", "include"} and not _are_patterns(value):
            raise UsageError(
                f"{name!r} in ~/{FILE} must be a list of names or patterns, such as `['scratch', '*.tmp']`"
            )
    if unknown := [one for one in settings.get("include", ()) if one not in DERIVED]:
        raise UsageError(
            f"'include' in ~/{FILE} has {unknown[0]!r}, which is not left out by default; it may have "
            f"{', '.join(DERIVED)}.{did_you_mean(unknown[0], DERIVED)}"
        )
    values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in settings.items()}
    return Choice(**values)


def _are_patterns(value: Any) -> bool:
    # restic reads a pattern that begins with "!" as an exception, and an empty one as an error.
    return isinstance(value, list) and all(
        isinstance(one, str) and one and not one.startswith("!") and "\0" not in one for one in value
    )
