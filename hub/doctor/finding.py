"""The findings of the checks, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from textwrap import TextWrapper

WIDTH = 118
INDENT = " " * 23


class Level(StrEnum):
    """The severity of a finding; a fault breaks the hub or a feature that `.env` enables, but a warning does not."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A result of a check: what the check ``found``, and the ``remedy`` with one step on each line."""

    level: Level
    check: str
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        """Check that warnings and faults have a remedy, and that other findings have none."""
        if (self.level is Level.OK) == bool(self.remedy):
            raise ValueError(f"{self.check}: warnings and faults need a remedy, other findings have none")

    def text(self) -> str:
        """Return the text to print; remedies are not wrapped, because people copy commands from them."""
        head = f"{self.level:<9}{self.check:<14}"
        # Do not break names and paths, because people copy them.
        wrapper = TextWrapper(
            WIDTH, initial_indent=head, subsequent_indent=INDENT, break_on_hyphens=False, break_long_words=False
        )
        lines = wrapper.wrap(self.found)
        return "\n".join([*lines, *(f"{INDENT}-> {line}" for line in self.remedy.splitlines())])


def ok(check: str, found: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(level=Level.OK, check=check, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return a finding about a problem that does not prevent the hub from working."""
    return Finding(level=Level.WARNING, check=check, found=found, remedy=remedy)


def fault(check: str, found: str, remedy: str) -> Finding:
    """Return a finding about a problem that must be fixed."""
    return Finding(level=Level.FAULT, check=check, found=found, remedy=remedy)
